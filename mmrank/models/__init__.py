from .backbones import *  # noqa: F403
from .heads import *  # noqa: F403
from .learners import *  # noqa: F403
from .losses import *  # noqa: F403
