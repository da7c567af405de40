"""Disks and links of a simulated network."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from rangecast.model.sets.members import Id
from rangecast.overlay.broker.event_log import Block


@dataclass(slots=True)
class Disk:
    """A disk: unsynced writes are lost in a crash."""

    blocks: list[Block] = field(default_factory=list)
    synced: int = 0
    """Number of synced blocks."""
    delivered: int = 0
    """Log position up to which clients have events."""
    subscriptions: dict[Id, Any] = field(default_factory=dict)
    incarnation: int = 0
    """Incarnation of the last start."""
    log: str = ""
    """Identity of the log."""
    epochs: tuple[str, ...] = ()
    """Epochs of the starts that have written to it, the newest first."""
    copy: Disk | None = None
    """Backup of the disk."""

    def events(self, blocks: int) -> int:
        """Return the log position after this many blocks."""
        return sum(len(block) for block in self.blocks[:blocks])

    def keep_copy(self) -> None:
        """Back up the synced state."""
        self.copy = replace(self, blocks=self.blocks[: self.synced], copy=None)

    def restored(self) -> list[Block]:
        """Restore the backup, except for subscriptions; return the lost blocks."""
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
    """Time until which frames from the first end are lost."""
    clogged: float = 0.0
    """Time until which frames are held."""
    last: dict[str, float] = field(default_factory=dict)
    """By sender: the arrival time of its last frame."""
    guest: str = ""
    """The end whose name another broker has taken."""

    def other(self, end: str) -> str:
        """Return the other end."""
        return self.ends[1] if end == self.ends[0] else self.ends[0]
