"""The package's version, read by ``setup.py`` without importing torch."""

__version__ = '0.1.0'
