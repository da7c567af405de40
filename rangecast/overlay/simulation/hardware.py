"""Disks and links of a simulated network."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from rangecast.model.sets.members import Id
from rangecast.overlay.broker.event_log import Block


@dataclass(slots=True)
class Disk:
    """A disk: what wasn't synced is lost in a crash."""

    blocks: list[Block] = field(default_factory=list)
    synced: int = 0
    """Of the blocks."""
    delivered: int = 0
    """Log position up to which clients have events."""
    subscriptions: dict[Id, Any] = field(default_factory=dict)
    incarnation: int = 0
    """Of the last start."""
    log: str = ""
    """The identity of the log."""
    epochs: tuple[str, ...] = ()
    """Of the starts that have written to it, the newest first."""
    copy: Disk | None = None
    """As it was some time ago."""

    def events(self, blocks: int) -> int:
        """Return the place in the log after this many blocks."""
        return sum(len(block) for block in self.blocks[:blocks])

    def keep_copy(self) -> None:
        """Make a backup of what is synced."""
        self.copy = replace(self, blocks=self.blocks[: self.synced], copy=None)

    def restored(self) -> list[Block]:
        """Go back to the backup, but for subscriptions; return what is lost."""
        copy = self.copy
        assert copy is not None
        lost = self.blocks[len(copy.blocks) :]
        self.blocks, self.synced = [*copy.blocks], len(copy.blocks)
        self.delivered = min(self.delivered, self.events(self.synced))
        self.incarnation, self.epochs = copy.incarnation, copy.epochs
        return lost


@dataclass(slots=True)
class Edge:
    """A link between two brokers."""

    ends: tuple[str, str]
    is_up: bool = False
    session: int = 0
    deaf: float = 0.0
    """Until then frames from the first end are lost."""
    clogged: float = 0.0
    """Until then frames are held."""
    last: dict[str, float] = field(default_factory=dict)
    """By sender: when its last frame arrives."""
    guest: str = ""
    """The end whose place another broker of its name has taken."""

    def other(self, end: str) -> str:
        """Return the other end."""
        return self.ends[1] if end == self.ends[0] else self.ends[0]
