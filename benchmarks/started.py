"""Servers that benchmarks and tests start: on 127.0.0.1, on a free port, stopped by their ids.

Programs that no package of Python brings are fetched once, into a cache folder.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

CACHE = Path.home() / ".cache" / "rangecast-tests"
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"


class Unavailable(RuntimeError):  # noqa: N818
    """No server can be started here; says why."""


# ---- processes


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def answers(port: int) -> bool:
    """Return whether a port accepts connections."""
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def server(
    command: list[Any], log: Path, is_up: Callable[[], bool], *, seconds: int = 180, **how: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the `with` ends; it and all that it started are killed then."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **how,
        )
    try:
        end = time.monotonic() + seconds
        while not is_up():
            if process.poll() is not None or time.monotonic() > end:
                raise Unavailable(f"{command[0]}: didn't start\n{log.read_text()[-3000:]}")
            time.sleep(0.2)
        yield process
    finally:
        with suppress(ProcessLookupError):  # it has ended, and was waited for
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def unprivileged_user() -> str | None:
    """Return the user for programs that refuse to run as root; `None`: the current user."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    for name in ("postgres", "nobody"):
        if name in known:
            return name
    raise Unavailable("it doesn't run as root, and there is no user postgres or nobody")


def as_user(name: str | None) -> dict[str, Any]:
    """Return the arguments of `Popen` that start a process as this user."""
    if name is None:
        return {}
    return {"user": name, "group": pwd.getpwnam(name).pw_gid, "extra_groups": []}


def give(folder: Path, name: str | None) -> None:
    """Give a folder and all that is in it to a user."""
    if name is not None:
        owner = pwd.getpwnam(name)
        for path in (folder, *folder.rglob("*")):
            os.chown(path, owner.pw_uid, owner.pw_gid)


# ---- programs


def fetched(name: str, fetch: Callable[[Path], None]) -> Path:
    """Return a folder of the cache; the first time `fetch` fills it.

    Of processes that fetch at the same time, the first one to finish fills it.
    """
    place = CACHE / name
    if not place.exists():
        fresh = place.with_name(f"{name}.{os.getpid()}")
        fresh.mkdir(parents=True)
        try:
            fetch(fresh)
        except (OSError, subprocess.SubprocessError) as error:
            shutil.rmtree(fresh)
            raise Unavailable(f"it can't be fetched here\n{error}") from error
        try:
            fresh.rename(place)
        except OSError:
            shutil.rmtree(fresh)
            if not place.exists():
                raise
    return place


def download_with_maven(folder: Path, coordinates: str, *, transitive: bool = False) -> None:
    """Download an artifact into a folder with Maven; `transitive`: with what it needs to run."""
    if transitive:
        group, artifact, version = coordinates.split(":")
        (folder / "pom.xml").write_text(
            "<project><modelVersion>4.0.0</modelVersion><groupId>t</groupId><artifactId>t"
            "</artifactId><version>1</version><dependencies><dependency>"
            f"<groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
            f"<version>{version}</version></dependency></dependencies></project>"
        )
        goal = [f"{_PLUGIN}:copy-dependencies", "-DincludeScope=runtime"]
    else:
        goal = [f"{_PLUGIN}:copy", f"-Dartifact={coordinates}"]
    command = ["mvn", "-q", "-B", *goal, f"-DoutputDirectory={folder}"]
    subprocess.run(command, cwd=folder, check=True, timeout=600)
