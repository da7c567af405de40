"""Our server in a process of its own, as a benchmark starts, kills and restarts it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.server_load import SPACE
from rangecast.model.space import Space


class Served:
    """A server with the space `points`; `track` is its table of TOML."""

    def __init__(self, folder: Path, space: Space = SPACE, track: str = ""):
        self.folder = folder
        file = folder / "points.toml"
        space.save(file)
        file.write_text(file.read_text() + track)
        self.start()

    def start(self) -> None:
        """Start it; return when it serves."""
        command = [sys.executable, "-m", "rangecast", "serve", "--space", "points.toml"]
        self.process = subprocess.Popen(
            [*command, "--data", "data", "--port", "0"],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(Path.cwd())},
        )
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        self.url, self.host, port = re.findall(r"(http://([^:]+):(\d+))", said)[0]
        self.port = int(port)

    def kill(self) -> None:
        """End it as a crash does."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def served(folder: Path, space: Space = SPACE, track: str = "") -> Iterator[Served]:
    """Run a server until the `with` ends."""
    one = Served(folder, space, track)
    try:
        yield one
    finally:
        one.kill()
