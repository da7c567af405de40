"""Server processes: started by the zygote of `starter`, killed, ended and waited for."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests import ROOT
from tests.soak.chaos.shim import Control

STARTING = 120.0
"""Seconds that a start may take on the busiest machine."""
_SERVING = re.compile(r"Serving on (\S+),")


class Zygote:
    """The process that forks servers, with the shim loaded."""

    def __init__(self, shim: Path):
        environment = {**os.environ, "LD_PRELOAD": str(shim), "PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.soak.chaos.starter"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            cwd=ROOT,
            text=True,
        )
        self._changed = threading.Condition()
        self._started: list[int] = []
        self._codes: dict[int, int] = {}
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            found = json.loads(line)
            with self._changed:
                if "started" in found:
                    self._started.append(found["started"])
                else:
                    self._codes[found["ended"]] = found["code"]
                self._changed.notify_all()
        self._process.stdout.close()

    def fork(self, asked: dict[str, Any]) -> int:
        """Start a server; return its process."""
        assert self._process.stdin is not None
        with self._changed:
            print(json.dumps(asked), file=self._process.stdin, flush=True)
            if not self._changed.wait_for(lambda: self._started, STARTING):
                raise RuntimeError("the zygote doesn't answer")
            return self._started.pop()

    def code(self, process: int) -> int | None:
        """Return the exit code of a process, `None` while it runs."""
        with self._changed:
            return self._codes.get(process)

    def wait(self, process: int, seconds: float) -> int | None:
        """Return the exit code of a process, `None` if it still runs after some seconds."""
        with self._changed:
            self._changed.wait_for(lambda: process in self._codes, seconds)
            return self._codes.get(process)

    def end(self) -> None:
        """End the zygote."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class Server:
    """One server: a folder, a port, and the process that serves it now, if one does."""

    def __init__(self, zygote: Zygote, name: str, folder: Path, **options: Any):
        """`options`: `arguments` for the shell, `segment`, `snapshot` and `plant`."""
        self.name = name
        self.port = free_port()
        self.data = folder / name / "data"
        self.output = folder / name / "output.txt"
        self.data.mkdir(mode=0o700, parents=True)
        self.control = Control(folder / name, self.data)
        self.life = 0
        """Number of starts."""
        self.is_up = threading.Event()
        self._zygote = zygote
        self._options = {"plant": "", "segment": 60_000, "snapshot": 40, "arguments": []} | options
        self._process = 0

    @property
    def url(self) -> str:
        """Return its address."""
        return f"http://127.0.0.1:{self.port}"

    def begin(self) -> None:
        """Start it; don't wait until it is ready."""
        arguments = ["--data", str(self.data), "--port", str(self.port)]
        asked = {"control": str(self.control.path), "output": str(self.output)}
        self.output.write_text("")
        self._process = self._zygote.fork(
            self._options | asked | {"arguments": [*arguments, *self._options["arguments"]]}
        )
        self.life += 1

    def start(self) -> bool:
        """Start it; return whether it is ready. Else it has ended, or hangs and was killed."""
        self.begin()
        deadline = time.monotonic() + STARTING
        while not _SERVING.search(self.output.read_text()):
            if self.code() is not None:
                return False
            if time.monotonic() > deadline:
                self.kill()
                return False
            time.sleep(0.005)
        self.is_up.set()
        return True

    def code(self) -> int | None:
        """Return its exit code, `None` while it runs."""
        return self._zygote.code(self._process) if self._process else 0

    def signal(self, number: int) -> None:
        """Send it a signal."""
        if self._process and self.code() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process, number)

    def wait(self, seconds: float) -> int | None:
        """Return its exit code, `None` if it still runs after some seconds."""
        return self._zygote.wait(self._process, seconds)

    def kill(self) -> None:
        """Kill it with SIGKILL, and wait until it is gone."""
        self.is_up.clear()
        if self._process:
            self.signal(signal.SIGKILL)
            if self.wait(STARTING) is None:
                raise RuntimeError(f"{self.name}: SIGKILL doesn't end it")

    def said(self) -> str:
        """Return the last lines of its output."""
        return "\n".join(self.output.read_text(errors="replace").splitlines()[-12:])


def free_port() -> int:
    """Return a port that is free."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def until(is_so: Callable[[], Any], seconds: float, step: float = 0.02) -> bool:
    """Wait for a condition; return whether it came about."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(step)
    return True
