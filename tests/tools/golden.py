"""Golden files of the interfaces, so that a change of one is seen in review.

`python -m tests.tools.golden` writes them again; `tests/docs/test_golden.py` compares them.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from docs import make_cli, make_http
from rangecast.server import metrics as server_metrics
from rangecast.server.service import Service
from rangecast.server.workers.metrics import WorkerMetrics
from rangecast.server.workers.worker import Totals
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


def openapi() -> str:
    """Return the OpenAPI document of the server.

    Left out: the version of the package, and the bodies of errors, which are all alike.
    """
    document = make_http.openapi()
    del document["info"]["version"]
    for methods in document["paths"].values():
        for operation in methods.values():
            for status, answer in operation["responses"].items():
                if int(status) >= 400:
                    operation["responses"][status] = answer["description"]
    return json.dumps(document, indent=1) + "\n"


def metrics() -> str:
    """Return the type, name, labels and help of every metric of a server and of a worker."""
    service = Service(None)
    links: Any = SimpleNamespace(
        status=lambda: {"links": [], "counts": {}, "gaps": 0, "failures": 0}
    )
    follower: Any = SimpleNamespace(contact_age=0.0, why_not_ready=str, state="", lag=0, failures=0)
    worker: Any = SimpleNamespace(totals=Totals(), seq=0, why_not_ready=str)
    families = [
        *server_metrics.ServerMetrics(service, None).collect(),
        *server_metrics.link_metrics(links),
        *server_metrics.source_metrics([]),
        *server_metrics.follower_metrics(follower),
        *WorkerMetrics(worker).collect(),
    ]
    service.close()
    lines = [
        f"{one.type} {one.name}{'_total' * (one.type == 'counter')}"
        f"{{{', '.join(getattr(one, '_labelnames', ()))}}}: {one.documentation}"
        for one in families
    ]
    return "\n".join(lines).replace("{}", "") + "\n"


INTERFACES: dict[str, Callable[[], str]] = {
    "cli_help.txt": cli_help,
    "metrics.txt": metrics,
    "openapi.json": openapi,
    "public_names.txt": public_names,
}
"""The text of each golden file, by its name in `tests/golden`."""


def main(folder: Path = GOLDEN) -> None:
    """Write all files."""
    for name, text in INTERFACES.items():
        (folder / name).write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
