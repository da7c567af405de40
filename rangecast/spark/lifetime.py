"""Lifetime of snapshots: each is removed after the last query that uses it.

`match(events, subscriptions, space)` ships a structure of which its caller has no handle to release
it by. The result is a plan in the JVM, and so is everything that is made of it: views, caches,
streams. All of these share the one Python function of the plan. A weak reference of the JVM tells
when that function is gone; then, or when the session has stopped, the snapshot is removed. It is
looked at whenever another one is shipped, and every few seconds while there are any.

A session of Spark Connect keeps what it was sent for as long as it lives; the copy on the client's
disk is removed at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from rangecast.spark.session import is_connect

_INTERVAL = 5.0
"""Seconds between two looks."""
_MIN_COLLECTED = 1 << 30
"""Bytes of snapshots from which on the JVM is asked to collect its garbage; it may have no other
reason to."""


class _WatchedSnapshot(NamedTuple):
    context: SparkContext
    functions: list[Any]
    """Weak references of the JVM to what uses the snapshot."""
    release: Callable[[], None]
    size: int

    def is_unused(self) -> bool:
        if self.context._jsc is None:
            return True
        return all(function.refersTo(None) for function in self.functions)


class _Cleaner:
    """Cleaner that releases unused snapshots."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: list[_WatchedSnapshot] = []
        self._thread: threading.Thread | None = None
        self._collect_at = _MIN_COLLECTED

    def watch(self, watched: _WatchedSnapshot) -> None:
        self.sweep()
        with self._lock:
            self._watched.append(watched)
            held = sum(other.size for other in self._watched)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True, name="snapshots")
                self._thread.start()
        if held >= self._collect_at:
            jvm: Any = watched.context._jvm
            jvm.System.gc()
            self.sweep()
            left = sum(other.size for other in self._watched)
            self._collect_at = max(_MIN_COLLECTED, 2 * left)

    def sweep(self) -> int:
        """Release unused snapshots; return the number still in use."""
        with self._lock:
            used = []
            for watched in self._watched:
                if watched.is_unused():
                    watched.release()
                else:
                    used.append(watched)
            self._watched = used
            return len(self._watched)

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            pause.wait(_INTERVAL)
            with suppress(Exception):  # the JVM may have ended: then nothing is to be asked
                self.sweep()
            with self._lock:
                if not self._watched:
                    self._thread = None
                    return


_cleaner = _Cleaner()


def release_with_frame(frame: DataFrame, release: Callable[[], None], size: int = 0) -> None:
    """Call `release` once nothing uses a result of `mapInArrow` or `applyInArrow`.

    size   bytes held until then
    """
    session = frame.sparkSession
    if is_connect(session):
        release()
        return
    plan: Any = frame._jdf.queryExecution().analyzed()
    is_grouped = plan.nodeName().startswith("FlatMapGroups")
    function = plan.functionExpr() if is_grouped else plan.expressions().apply(0)
    release_with_functions(session, [function.func()], release, size)


def release_with_functions(
    session: SparkSession, functions: list[Any], release: Callable[[], None], size: int = 0
) -> None:
    """Call `release` once nothing uses these Python functions of the JVM."""
    context = session.sparkContext
    jvm: Any = context._jvm
    references = [jvm.java.lang.ref.WeakReference(function) for function in functions]
    _cleaner.watch(_WatchedSnapshot(context, references, release, size))


def sweep() -> int:
    """Release unused snapshots; return the number still in use."""
    return _cleaner.sweep()
