"""notify: an object changed: whose top-k list changed, in the fewest messages?

Names load when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rangecast.notify.board import Board as Board
    from rangecast.notify.given import Change as Change
    from rangecast.notify.messages import Message as Message
    from rangecast.notify.messages import Messages as Messages
    from rangecast.notify.subscriber import Interest as Interest

_HOMES = {
    "Board": "board",
    "Change": "given",
    "Interest": "subscriber",
    "Message": "messages",
    "Messages": "messages",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rangecast.notify' has no attribute {name!r}")
    return getattr(import_module(f"rangecast.notify.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)
