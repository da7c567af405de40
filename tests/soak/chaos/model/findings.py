"""Broken promises."""

from __future__ import annotations

from typing import Any


class Findings:
    """Findings of one check."""

    def __init__(self) -> None:
        self.all: list[dict[str, Any]] = []

    def add(self, promise: str, detail: str, **keys: Any) -> None:
        """Note a broken promise; `keys`: the ops, names, ids or seqs that it is about."""
        self.all.append({"promise": promise, "detail": detail, "keys": keys})
