"""Content-based publish/subscribe over ranges.

Names load when they are first used, so that `import rangecast` is light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rangecast.engine import Answers as Answers
    from rangecast.engine import Engine as Engine
    from rangecast.errors import BadRow as BadRow
    from rangecast.errors import BadRowError as BadRowError
    from rangecast.errors import FileError as FileError
    from rangecast.errors import FilterError as FilterError
    from rangecast.errors import RangecastError as RangecastError
    from rangecast.errors import SnapshotError as SnapshotError
    from rangecast.errors import SpaceError as SpaceError
    from rangecast.errors import UsageError as UsageError
    from rangecast.errors import ValueRefusedError as ValueRefusedError
    from rangecast.liveset import Subscription as Subscription
    from rangecast.model.attributes import Boolean as Boolean
    from rangecast.model.attributes import Category as Category
    from rangecast.model.attributes import Hierarchy as Hierarchy
    from rangecast.model.attributes import Integer as Integer
    from rangecast.model.attributes import Number as Number
    from rangecast.model.attributes import String as String
    from rangecast.model.attributes import Timestamp as Timestamp
    from rangecast.model.boxes import Boxes as Boxes
    from rangecast.model.events import EventFile as EventFile
    from rangecast.model.events import Events as Events
    from rangecast.model.events import encode_events as encode_events
    from rangecast.model.filters import Filter as Filter
    from rangecast.model.filters import parse as parse
    from rangecast.model.space import Space as Space
    from rangecast.model.subscriptions import encode_subscriptions as encode_subscriptions
    from rangecast.model.subscriptions import read_subscriptions as read_subscriptions
    from rangecast.rank.live import Rankings as Rankings

_HOMES = {
    "Answers": "engine",
    "Engine": "engine",
    "BadRow": "errors",
    "BadRowError": "errors",
    "Boolean": "model.attributes",
    "Boxes": "model.boxes",
    "Category": "model.attributes",
    "EventFile": "model.events",
    "Events": "model.events",
    "FileError": "errors",
    "Filter": "model.filters",
    "FilterError": "errors",
    "Hierarchy": "model.attributes",
    "Integer": "model.attributes",
    "Number": "model.attributes",
    "RangecastError": "errors",
    "Rankings": "rank.live",
    "SnapshotError": "errors",
    "Space": "model.space",
    "SpaceError": "errors",
    "String": "model.attributes",
    "Subscription": "liveset",
    "Timestamp": "model.attributes",
    "UsageError": "errors",
    "ValueRefusedError": "errors",
    "encode_events": "model.events",
    "encode_subscriptions": "model.subscriptions",
    "parse": "model.filters",
    "read_subscriptions": "model.subscriptions",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rangecast' has no attribute {name!r}")
    value = getattr(import_module(f"rangecast.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
