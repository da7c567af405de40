"""A process that has loaded and compiled everything, and forks servers: each starts at once.

Reads lines of JSON from stdin, {"data": folder, "point": "" or a name, "after": count, "options":
some of `run.Settings`}, and answers each by the number of the process that serves. The server
writes its address to <data>/url. At a point it kills itself with SIGKILL, when it comes there for
the given time.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

POINTS = (
    "before-commit",
    "in-commit",
    "after-commit",
    "after-match",
    "in-snapshot",
    "after-snapshot",
    "in-segment",
)


def main() -> None:
    """Fork a server for each line."""
    # All that a server loads: a fork has it, and is ready to serve that much sooner.
    import uvloop  # noqa: F401

    import rangecast.server.process  # noqa: F401
    from rangecast import Engine, Number, Space

    warm = Engine(Space([Number("x")]))
    warm.subscribe(1, "x < 5")
    warm.match_points([[1.0]])  # type: ignore[arg-type]
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the dead
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.close(0)
            code = 1
            try:
                _serve(Path(asked["data"]), asked["point"], asked["after"], asked["options"])
                code = 0
            finally:
                os._exit(code)
        print(child, flush=True)


def _serve(data: Path, point: str, after: int, options: dict[str, Any]) -> None:
    from rangecast import Number, Space, String
    from rangecast.server import maintenance
    from rangecast.server.process import Settings, serve

    maintenance.SNAPSHOT_AFTER = 40  # often
    _patch(point, after)
    space = Space([Number("x"), Number("y"), String("who")])

    def ready(url: str, _service: Any) -> None:
        partial = data / "url.partial"
        partial.write_text(url)
        partial.replace(data / "url")

    serve(Settings(data, **{"port": 0, "spaces": {"points": space}} | options), ready)


def _patch(point: str, after: int) -> None:
    """Let the server kill itself when it comes to a point."""
    from rangecast.server.log import sqlite
    from rangecast.server.pipeline.pipeline import CommitPipeline
    from rangecast.server.state import snapshots

    sqlite.SEGMENT = 20_000
    plain = sqlite.SqliteLog.__init__

    def small(self: Any, folder: Any, **options: Any) -> None:
        plain(self, folder, **{"segment": 20_000} | options)

    sqlite.SqliteLog.__init__ = small  # type: ignore[method-assign]
    left = [after]

    def die() -> None:
        left[0] -= 1
        if left[0] <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def wrap(owner: Any, name: str, *, before: bool) -> None:
        inner: Callable[..., Any] = getattr(owner, name)

        def outer(*given: Any, **options: Any) -> Any:
            if before:
                die()
                return inner(*given, **options)
            found = inner(*given, **options)
            die()
            return found

        setattr(owner, name, outer)

    if point == "before-commit":
        wrap(sqlite.SqliteLog, "append", before=True)
    elif point == "in-commit":
        wrap(sqlite, "chained", before=True)
    elif point == "after-commit":
        wrap(sqlite.SqliteLog, "append", before=False)
    elif point == "after-match":
        wrap(CommitPipeline, "_match_batch", before=False)
    elif point == "in-snapshot":
        wrap(snapshots, "save_boxes", before=False)
    elif point == "after-snapshot":
        wrap(snapshots.SnapshotState, "write", before=False)
    elif point == "in-segment":
        wrap(sqlite.SqliteLog, "_connect_writer", before=True)


if __name__ == "__main__":
    main()
