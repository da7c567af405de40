"""Log lines of a server: text, or JSON for machines.

Lines never contain request bodies, queries or tokens.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any

import msgspec

FIELDS = ("request", "method", "path", "status", "seconds", "tenant", "seq", "consumer")
"""Fields that a line may have beside its message."""
_encode = msgspec.json.Encoder().encode


def configure(form: str, level: str) -> None:
    """Write log lines to stderr as `text` or `json`; the level `info` includes every request."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("rangecast").setLevel(level.upper())


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields = {name: getattr(record, name, None) for name in FIELDS}
    return {
        name: printable(value) if isinstance(value, str) else value
        for name, value in fields.items()
        if value is not None
    }


def printable(text: str) -> str:
    """Return a text with unprintable characters escaped, so that clients can't forge log lines."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in text
    )


def _lines(text: str) -> list[str]:
    return [printable(line) for line in text.splitlines()]


class TextLines(logging.Formatter):
    """Formats log lines as text."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s%(fields)s")

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as a line: its message, then its fields."""
        record.fields = "".join(f" {name}={value}" for name, value in _fields(record).items())
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """Return a line; continuation lines are indented."""
        first, *more = _lines(record.message) or [""]
        record.message = first
        return "\n".join([super().formatMessage(record), *("    " + field for field in more)])


class JsonLines(logging.Formatter):
    """Formats log lines as JSON objects with time, level, logger, message and fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as a line of JSON."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": "\n".join(_lines(record.getMessage())),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return _encode(line).decode()
