"""A Spark session for the time of a command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rangecast.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def spark_session(
    master: str | None, conf: Mapping[str, Any] | None = None
) -> Iterator[SparkSession]:
    """Start Spark, and stop it at the end if this command started it.

    An error of ours that happened in a worker is raised again as what it is.
    """
    from rangecast.spark import running, start

    theirs = running()
    session = start(master, conf=conf)
    from pyspark.errors import PySparkException  # without PySpark, the lines above say so

    try:
        yield session
    except PySparkException as error:
        raise UsageError(f"Spark: {_first_lines(str(error))}") from error
    finally:
        if theirs is None:
            session.stop()


def _first_lines(text: str, most: int = 12) -> str:
    """Return the beginning of one of Spark's long messages."""
    lines = [line for line in text.splitlines() if line.strip()]
    shown = lines[:most]
    return "\n  ".join([*shown, *(["..."] if len(lines) > most else [])])
