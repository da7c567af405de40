"""The data pipeline on Spark: steps from DataFrame to DataFrame, batch and streaming.

Names load when they are first used, and PySpark with them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rangecast.errors import UsageError

if TYPE_CHECKING:
    from rangecast.spark.matching import Prepared as Prepared
    from rangecast.spark.matching import match as match
    from rangecast.spark.matching import prepare as prepare
    from rangecast.spark.session import running as running
    from rangecast.spark.session import start as start

_HOMES = {
    "Prepared": "matching",
    "match": "matching",
    "prepare": "matching",
    "running": "session",
    "start": "session",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rangecast.spark' has no attribute {name!r}")
    try:
        module = import_module(f"rangecast.spark.{_HOMES[name]}")
    except ModuleNotFoundError as error:
        if error.name != "pyspark":
            raise
        raise UsageError(
            "this needs PySpark, which isn't installed; to do: pip install 'rangecast[spark]'"
        ) from None
    return getattr(module, name)


def __dir__() -> list[str]:
    return list(__all__)
