from .l2net import L2Net

__all__ = ['L2Net']
