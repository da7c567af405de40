"""Content-based publish/subscribe over ranges.

Names load when they are first used; `__init__.pyi` lists them. Internal events (rebuilds, compiled
kernels, their cache folder) are logged to the standard `logging` module under the name `rangecast`;
nothing is printed by default.
"""

import logging

import lazy_loader

__version__ = "0.1.0"  # pyproject.toml reads it here
logging.getLogger(__name__).addHandler(logging.NullHandler())  # applications add their own
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
