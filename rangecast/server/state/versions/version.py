"""One version of a subscription."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from rangecast.server.state.edits import NEVER

NO_CONSUMER = -1
"""The consumer of a subscription that has none."""


class Version(msgspec.Struct, eq=False, array_like=True, gc=False, frozen=True):
    """One version of a subscription, valid from one edit to the next."""

    number: int
    name: str
    """Its id as text, which tells it from others."""
    filter: str
    consumer: int
    born: int
    """The seq of the edit that made it: events after it are matched with it."""
    died: int = NEVER
    score: float = 0.0
    weights: dict[str, float] = {}
    expires: int = 0
    is_integer: bool = False
    """Whether its id was given as an integer."""
    track: dict[str, Any] | None = None
    """Rule of its transitions, which it gets instead of matches."""

    @property
    def id(self) -> str | int:
        """Id as it was given: text or integer."""
        return int(self.name) if self.is_integer else self.name

    def ended(self, died: int) -> Version:
        """Return the version, marked as ended by edit `died`."""
        return self if died == self.died else msgspec.structs.replace(self, died=died)


class Gone(NamedTuple):
    """A subscription that an edit removed."""

    number: int
    name: str
    died: int
