"""Content-based publish/subscribe over ranges.

Names load when they are first used; `__init__.pyi` lists them.
"""

import lazy_loader

__version__ = "0.1.0"  # pyproject.toml reads it here
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
