"""The data pipeline on Spark: steps from DataFrame to DataFrame, batch and streaming.

Names load when they are first used, and PySpark with them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rangecast.errors import UsageError

if TYPE_CHECKING:
    from rangecast.spark.answering import Step as Step
    from rangecast.spark.commits import read_committed as read_committed
    from rangecast.spark.covering import cover as cover
    from rangecast.spark.edits import Edits as Edits
    from rangecast.spark.history import backfill as backfill
    from rangecast.spark.matching import Prepared as Prepared
    from rangecast.spark.matching import match as match
    from rangecast.spark.matching import prepare as prepare
    from rangecast.spark.merging import merge as merge
    from rangecast.spark.notifying import KeptLists as KeptLists
    from rangecast.spark.pinned import Pinned as Pinned
    from rangecast.spark.pipeline import Pipeline as Pipeline
    from rangecast.spark.ranking import prepare_ranking as prepare_ranking
    from rangecast.spark.ranking import rank as rank
    from rangecast.spark.session import running as running
    from rangecast.spark.session import start as start
    from rangecast.spark.sinks import Callback as Callback
    from rangecast.spark.sinks import Console as Console
    from rangecast.spark.sinks import Folder as Folder
    from rangecast.spark.sources import files_of as files_of
    from rangecast.spark.stream import run_stream as run_stream
    from rangecast.spark.versions import Versions as Versions

_HOMES = {
    "Callback": "sinks",
    "Console": "sinks",
    "Edits": "edits",
    "Folder": "sinks",
    "KeptLists": "notifying",
    "Pinned": "pinned",
    "Pipeline": "pipeline",
    "Prepared": "matching",
    "Step": "answering",
    "Versions": "versions",
    "backfill": "history",
    "cover": "covering",
    "files_of": "sources",
    "match": "matching",
    "merge": "merging",
    "prepare": "matching",
    "prepare_ranking": "ranking",
    "rank": "ranking",
    "read_committed": "commits",
    "run_stream": "stream",
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
