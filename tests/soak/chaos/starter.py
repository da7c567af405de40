"""A process that has loaded everything and forks servers: each is `rangecast serve`, at once.

Reads lines of JSON from stdin: {"arguments": those of the shell, "control": a page of the shim,
"output": a file for stdout and stderr, "plant": "" or a name of `plants`, "segment": bytes of a
segment of the log, "snapshot": edits between snapshots}. Answers {"started": pid}, and later
{"ended": pid, "code": exit code, negative for a signal}.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
from typing import Any


def main() -> None:
    """Fork a server per line, until stdin ends."""
    import uvloop  # noqa: F401

    import rangecast.cli.commands.server.serve
    import rangecast.server.process  # noqa: F401
    from rangecast import Engine, Number, Space
    from rangecast.server.state.boards import warm
    from rangecast.server.state.edits import PutBoard

    engine = Engine(Space([Number("x")]))
    engine.subscribe(1, "x < 5")
    engine.match_points([[1.0]])  # type: ignore[arg-type]
    warm(PutBoard("t", "b", 3))
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(woken)
    left = b""
    while True:
        ready, _, _ = select.select([0, wake], [], [])
        if wake in ready:
            os.read(wake, 4096)
            _reap()
        if 0 in ready:
            text = os.read(0, 1 << 16)
            if not text:
                return
            *lines, left = (left + text).split(b"\n")
            for line in lines:
                asked = json.loads(line)
                child = os.fork()
                if child == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    for one in (wake, woken):
                        os.close(one)
                    _serve(asked)
                    return  # as a program ends that has done its work
                _say({"started": child})


def _reap() -> None:
    while True:
        try:
            child, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not child:
            return
        _say({"ended": child, "code": os.waitstatus_to_exitcode(status)})


def _say(what: dict[str, Any]) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


def _serve(asked: dict[str, Any]) -> None:
    output = os.open(asked["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    for number, file in ((0, null), (1, output), (2, output)):
        os.dup2(file, number)
    if ctypes.CDLL(None).chaos_attach(asked["control"].encode()):
        raise OSError(f"no control page at {asked['control']}")
    make_small(asked["segment"], asked["snapshot"])
    if asked["plant"]:
        from tests.soak.chaos.plants import PLANTS

        PLANTS[asked["plant"]].patch()
    from rangecast.cli.main import main as shell

    sys.argv = ["rangecast", "serve", *asked["arguments"]]
    shell()


def make_small(segment: int, snapshot: int) -> None:
    """Let segments of the log be small, and snapshots frequent."""
    from rangecast.server import maintenance
    from rangecast.server.log import sqlite

    maintenance.SNAPSHOT_AFTER = snapshot
    plain = sqlite.SqliteLog.__init__

    def small(self: Any, folder: Any, **options: Any) -> None:
        plain(self, folder, **{"segment": segment} | options)

    sqlite.SqliteLog.__init__ = small  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
