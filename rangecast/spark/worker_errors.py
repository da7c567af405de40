"""Raise rangecast errors from a worker in the driver, with their original types.

Spark hands over the text of a worker's traceback, within an exception of its own. Where PySpark
turns an answer of the JVM, or of a Connect server, into that exception, this module looks for a
rangecast error in the text and raises it, with Spark's exception as its `__cause__`. All other
exceptions stay as they are. PySpark hooks itself into py4j in the same way and at the same place.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import Any

import pyspark.errors.exceptions.captured
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rangecast import errors
from rangecast.spark.session import is_connect

_DONE = "raises_worker_errors"
_OURS = re.compile(
    r"(?m)^rangecast\.errors\.(\w+): "
    r"(.*(?:\n(?!\tat | SQLSTATE: |Driver stacktrace|JVM stacktrace).*\S.*)*)"
)
"""A rangecast error in a traceback, with all lines of its text."""
_REJECTED_ROW = re.compile(
    r"(?s)(.*?), column (['\"])(.*?)\2: (.*)\n  given: (.*)\n  hint: (.*)",
)
"""The text of a `RejectedRowError`."""


def worker_error(message: str) -> errors.RangecastError | None:
    """Return the rangecast error inside a message of Spark; `None`: there is none."""
    names = _OURS.findall(message)
    if not names:
        return None
    name, text = names[-1]
    kind = getattr(errors, name, errors.UsageError)
    if kind is not errors.RejectedRowError:
        error: errors.RangecastError = kind(text)
        return error
    parts = _REJECTED_ROW.fullmatch(text)
    if parts is None:
        return errors.UsageError(text)
    source, _, column, reason, value, remedy = parts.groups()
    return errors.RejectedRowError(errors.RejectedRow(source, None, column, value, reason, remedy))


def raise_worker_errors(session: SparkSession) -> None:
    """Make PySpark raise errors of workers with their own types, in this process."""
    if is_connect(session):
        from pyspark.sql.connect.client.core import SparkConnectClient

        client: Any = SparkConnectClient
        client._handle_error = _raising(client._handle_error)
        return
    captured: Any = pyspark.errors.exceptions.captured
    handled = captured.capture_sql_exception
    if hasattr(handled, _DONE):
        return

    @wraps(handled)
    def capture(call: Callable[..., Any]) -> Callable[..., Any]:
        return _raising(handled(call))

    vars(capture)[_DONE] = True
    captured.capture_sql_exception = capture  # every session that is made installs it
    captured.install_exception_handler()


def _raising(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that raises rangecast errors instead of Spark's; wrap it only once."""
    if hasattr(call, _DONE):
        return call

    @wraps(call)
    def raising(*arguments: Any, **options: Any) -> Any:
        try:
            return call(*arguments, **options)
        except (PySparkException, Py4JJavaError) as error:
            ours = worker_error(str(error))
            if ours is None:
                raise
            raise ours from error

    vars(raising)[_DONE] = True
    return raising
