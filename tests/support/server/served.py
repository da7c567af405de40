"""A server in this process, and clients of it."""

from __future__ import annotations

import threading
from typing import Any

from rangecast.server.process import Server, Settings, serve
from rangecast.workloads import generate

MADE = generate("market", seed=7, subscriptions=200, events=200)
EVENTS = [
    {
        key: value.isoformat() if key == "time" else value
        for key, value in row.items()
        if value is not None
    }
    for row in MADE.tables["events"].to_pylist()
]
SUBSCRIPTIONS = MADE.tables["subscriptions"].select(["id", "filter", "score"]).to_pylist()


class Served:
    """A server in a thread."""

    def __init__(self, **options: Any):
        self.url = ""
        self.server: Server | None = None
        is_ready = threading.Event()

        def ready(url: str, server: Server) -> None:
            self.url, self.server = url, server
            is_ready.set()

        settings = Settings(**{"data": None, "port": 0, "spaces": {"market": MADE.space}} | options)
        self._thread = threading.Thread(target=serve, args=(settings, ready), daemon=True)
        self._thread.start()
        assert is_ready.wait(120)

    def stop(self) -> None:
        assert self.server is not None
        self.server.stop()
        self._thread.join(120)
        assert not self._thread.is_alive()
