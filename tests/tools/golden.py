"""Golden files of the interfaces, so that a change of one is seen in review.

`python -m tests.tools.golden` writes them again; `tests/docs/test_golden.py` compares them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

from docs import make_cli
from tests import GOLDEN, ROOT


def cli_help() -> str:
    """Return the help of every command and subcommand."""
    return "\n".join(
        f"$ {context.command_path} --help\n{command.get_help(context).rstrip()}\n"
        for command, context in make_cli.commands()
    )


def public_names() -> str:
    """Return the names in `__all__` of the package and its public sub-packages."""
    lines = []
    for path in sorted((ROOT / "rangecast").glob("**/__init__.py")):
        if "__all__" in path.read_text():
            name = ".".join(path.parent.relative_to(ROOT).parts)
            lines += [f"{name}.{each}" for each in sorted(importlib.import_module(name).__all__)]
    return "\n".join(lines) + "\n"


INTERFACES: dict[str, Callable[[], str]] = {
    "cli_help.txt": cli_help,
    "public_names.txt": public_names,
}
"""The text of each golden file, by its name in `tests/golden`."""


def main(folder: Path = GOLDEN) -> None:
    """Write all files."""
    for name, text in INTERFACES.items():
        (folder / name).write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
