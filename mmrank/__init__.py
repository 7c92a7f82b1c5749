"""mmrank: ranking losses and metric learning for the OpenMMLab stack.

Importing the package is light: no registry is filled and neither mmcv nor
mmdet is imported. A config names our parts as ``mmrank.X``; MMEngine then
imports :mod:`mmrank.registry` and the module that registers ``X`` by itself.
"""

from .shipped import config_path
from .version import __version__

__all__ = ['__version__', 'config_path']
