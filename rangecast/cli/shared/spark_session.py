"""A Spark session for the duration of a command."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rangecast import errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FULL = re.compile("No space left on device|Disk quota exceeded|File too large")
_CALL = re.compile(r"\AAn error occurred while calling .*\n: (?:org\.apache\.spark\.\w+: )?")
"""Introduction of py4j to an error of the JVM."""
_JAVA_FRAME = re.compile(r"\s+(at .*\(.*\)|\.\.\. \d+ more)$")
_SHOWN = 12


@contextmanager
def spark_session(
    master: str | None, conf: Mapping[str, Any] | None = None
) -> Iterator[SparkSession]:
    """Start Spark, and stop it at the end if this command started it.

    A rangecast error in a worker is raised with its original type; other Spark errors are reported
    by their cause.
    """
    from rangecast.spark import current_session, get_session  # without PySpark, this says so

    # isort: split
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    theirs = current_session()
    session = None
    try:
        session = get_session(master, conf=conf)
        yield session
    except (PySparkException, Py4JError) as error:
        raise with_cause(str(error)) from error
    finally:
        if theirs is None and session is not None:
            session.stop()


def with_cause(message: str) -> errors.RangecastError:
    """Return an error with the cause, extracted from a long Spark message."""
    from rangecast.spark.worker_errors import worker_error

    ours = worker_error(message)
    if ours is not None:
        return ours
    full = _FULL.search(message)
    if full:
        return errors.FileError(f"Spark: {full.group()}; free some space, or use another disk")
    lines = [line for line in _CALL.sub("", message).splitlines() if line.strip()]
    lines = [line for line in lines if not _JAVA_FRAME.fullmatch(line)]
    if any("Traceback (most recent call last)" in line for line in lines):
        shown = ["...", *lines[-_SHOWN:]] if len(lines) > _SHOWN else lines
    else:
        shown = [*lines[:_SHOWN], "..."] if len(lines) > _SHOWN else lines
    return errors.UsageError("Spark: " + "\n  ".join(shown))
