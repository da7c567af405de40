"""Durable server: one totally ordered log. Matches are derived from it and never stored."""

from __future__ import annotations

from importlib.util import find_spec

from rangecast.errors import UsageError

_NEEDED = ("fastapi", "uvicorn", "httptools", "httpx", "prometheus_client", "websockets")


def need_server() -> None:
    """Fail early if the packages that the server needs are missing."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"this needs {', '.join(missing)}, which isn't installed\n"
            "  hint: pip install 'rangecast[server]'"
        )
