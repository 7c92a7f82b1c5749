from .metrics import *  # noqa: F403
