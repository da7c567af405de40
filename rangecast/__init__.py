"""Content-based publish/subscribe over ranges.

Names load when they are first used; `__init__.pyi` lists them. What a program may want to see of
the inside (rebuilds, kernels that are compiled, where they are kept) goes to the standard module
`logging`, under the name `rangecast`; nothing is shown unless it asks for it.
"""

import logging

import lazy_loader

__version__ = "0.1.0"  # pyproject.toml reads it here
logging.getLogger(__name__).addHandler(logging.NullHandler())  # applications add their own
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
