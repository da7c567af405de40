"""Data pipeline on Spark: steps from DataFrame to DataFrame, batch and streaming.

Names and PySpark are imported on first use; `__init__.pyi` lists the names.
"""

from typing import Any

import lazy_loader

from rangecast.errors import UsageError

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    try:
        return _load(name)
    except ModuleNotFoundError as error:
        if error.name != "pyspark":
            raise
        raise UsageError(
            "this needs PySpark, which isn't installed; hint: pip install 'rangecast[spark]'"
        ) from None
