"""notify: whose top-k lists change when an object changes? Answered in the fewest messages.

    board -> engine (base): line          interests are ranges of one number
                            boxes         interests are filters over several attributes
                            upper_bound   two attributes, on one of which filters have upper bounds
    servers                 a board spread over servers, one zone each

Names load when they are first used; `__init__.pyi` lists them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
