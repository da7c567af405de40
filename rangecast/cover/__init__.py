"""cover: which subscriptions are redundant, one by one?

    edits          coverset (ids) -> live (rows) -> graph (the rules) -> index -> blocks | papers
    whole sets     batch -> live; or plain, until kernels are compiled

Names load when they are first used; `__init__.pyi` lists them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
