"""Benchmark tables as Markdown, with the machine and the versions that they were measured on."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.measure import Table


def markdown(table: Table) -> list[str]:
    """Return a table as lines of Markdown."""
    lines = [f"## {table.title}", ""]
    lines.append("| " + " | ".join(table.headings) + " |")
    lines.append("| --- |" + " ---: |" * (len(table.headings) - 1))
    lines += ["| " + " | ".join(row) + " |" for row in table.rows]
    return [*lines, ""]


def machine(packages: Sequence[str]) -> str:
    """Return a sentence that tells the processor and the versions of packages."""
    told = ", ".join(f"{name} {_version(name)}" for name in packages)
    return (
        f"Machine: {_processor()}, {os.cpu_count()} cores. "
        f"Python {platform.python_version()}, {told}."
    )


def write(path: Path, lines: Sequence[str]) -> None:
    """Write a page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
