from .backbones import *  # noqa: F403
from .heads import *  # noqa: F403
from .heads.detection.rules import watch_heads
from .learners import *  # noqa: F403
from .losses import *  # noqa: F403

# no ranking loss exists without this package, so no head takes one unchecked
watch_heads()
