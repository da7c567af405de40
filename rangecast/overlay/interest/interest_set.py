"""Interest of a neighbour: a versioned set of items with a digest.

An item is named by a hash of what it says, so equal subscriptions are one item, and a set is the
same on both sides exactly if its digest is. A change applies only to the version that it was made
for; a broker that lacks that version asks for a snapshot. So frames that are lost, come twice or
late can't make the two sides drift apart, as counts of references would.

A snapshot comes in parts. They are staged, and swapped in whole: until then the old set is used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Literal, NamedTuple

import msgspec

from rangecast.errors import FrameError
from rangecast.overlay.interest.items import name_of
from rangecast.overlay.wire.frames import Interest, Item, Snapshot, Why, item_size

_TOP = (1 << 63) - 1


def digest_of_names(names: Iterable[str], *more: int) -> int:
    """Return the digest of some names, and of sets with these digests, in any order."""
    return (sum(map(name_of, names)) + sum(more)) & _TOP


@cache
def space_digest(definition: str) -> str:
    """Return a hash of a space, given as TOML."""
    return hashlib.sha256(definition.encode()).hexdigest()[:16]


def too_much(max_items: int, max_bytes: int) -> str:
    """Return the message to a neighbour whose interest exceeds the maximum."""
    return f"a neighbour may advertise up to {max_items:,} items and {max_bytes:,} bytes"


class ItemSet:
    """Items by name, their digest, and the version that counts changes."""

    def __init__(self, items: Iterable[Item] = (), version: int = 0):
        self.items = {item.name: item for item in items}
        self.bytes = sum(map(item_size, self.items.values()))
        self.digest = sum(self.items) & _TOP
        self.version = version

    def change(self, added: Sequence[Item], removed: Sequence[int]) -> None:
        """Add items that don't exist, remove others that do, and increment the version."""
        self.digest = self.digest_after(added, removed)
        for item in added:
            self.items[item.name] = item
            self.bytes += item_size(item)
        for name in removed:
            self.bytes -= item_size(self.items.pop(name))
        self.version += 1

    def digest_after(self, added: Sequence[Item], removed: Sequence[int]) -> int:
        """Return the digest after a change."""
        return (self.digest + sum(item.name for item in added) - sum(removed)) & _TOP


class Change(NamedTuple):
    """Change of a set by a frame."""

    added: list[Item]
    removed: list[int]


class ReceivedItems(ItemSet):
    """Items advertised by a neighbour, as received here."""

    def __init__(self, items: Iterable[Item] = ()):
        super().__init__(items)
        self.incarnation = 0
        """Incarnation that the neighbour last reported; 0: never."""
        self._staged: Snapshot | None = None
        """Part of the incoming snapshot, which stands for all."""
        self._parts: dict[int, list[Item]] = {}
        self._staged_items = self._staged_bytes = 0

    def restarted(self) -> None:
        """Accept the neighbour's next message, whatever its incarnation.

        Its interest stays until it is sent again.
        """
        self.incarnation = self.version = 0
        self._drop_staged()

    def _drop_staged(self) -> None:
        self._staged, self._parts = None, {}
        self._staged_items = self._staged_bytes = 0

    def lacks(self, incarnation: int, version: int, digest: int) -> Why | Literal[""]:
        """Return why a snapshot is needed to reach this version; "" if it isn't."""
        if incarnation < self.incarnation:
            return ""  # from before the neighbour's last start
        if incarnation > self.incarnation:
            return "incarnation"
        if version > self.version:
            return "gap"
        return "digest" if version == self.version and digest != self.digest else ""

    def change_of(self, frame: Interest, max_items: int, max_bytes: int) -> Change | Why | None:
        """Return the change by an Interest, or why it can't be applied; `None`: a duplicate."""
        if frame.incarnation != self.incarnation:
            return "incarnation" if frame.incarnation > self.incarnation else None
        if frame.before != self.version:
            return "gap" if frame.before > self.version else None
        known = self.items
        names = [item.name for item in frame.added]
        fits = len(set(names)) == len(names) and known.keys().isdisjoint(names)
        gone = set(frame.removed)
        fits &= len(gone) == len(frame.removed) and gone <= known.keys() | set(names)
        if not fits or self.digest_after(frame.added, frame.removed) != frame.digest:
            return "digest"
        size = self.bytes + sum(map(item_size, frame.added))
        if len(known) + len(names) - len(gone) > max_items or size > max_bytes:
            raise FrameError(too_much(max_items, max_bytes))
        return Change(frame.added, frame.removed)

    def stage(
        self, frame: Snapshot, max_items: int, max_bytes: int
    ) -> tuple[dict[int, Item] | None, bool]:
        """Stage a part; return all items once complete, and whether a snapshot was interrupted.

        Items are keyed by name. A part older than the known or staged state is ignored. All parts
        together have at most this many items and bytes.
        """
        if frame.part >= frame.parts or (not frame.items and frame.parts > 1):
            raise FrameError(f"part {frame.part} of {frame.parts} has {len(frame.items)} items")
        new = frame.incarnation, frame.version
        if new < (self.incarnation, self.version):
            return None, False
        staged, interrupted = self._staged, False
        if staged is None or new > (staged.incarnation, staged.version):
            interrupted = staged is not None
            self._drop_staged()
            self._staged = msgspec.structs.replace(frame, items=[])
        elif new < (staged.incarnation, staged.version):
            return None, False
        elif (frame.parts, frame.digest) != (staged.parts, staged.digest):
            raise FrameError("the parts of a snapshot disagree on their number")
        if frame.part not in self._parts:
            self._staged_items += len(frame.items)
            self._staged_bytes += sum(map(item_size, frame.items))
            if self._staged_items > max_items or self._staged_bytes > max_bytes:
                self._drop_staged()
                raise FrameError(too_much(max_items, max_bytes))
            self._parts[frame.part] = frame.items
        if len(self._parts) < frame.parts:
            return None, interrupted
        parts = [self._parts.get(part, []) for part in range(frame.parts)]
        items = {item.name: item for of_part in parts for item in of_part}
        self._drop_staged()
        if sum(items) & _TOP != frame.digest:
            raise FrameError("a snapshot doesn't match its digest")
        return items, interrupted

    def swap(self, frame: Snapshot, items: dict[int, Item]) -> list[int]:
        """Apply a complete snapshot; return the names of the items that it removes."""
        gone = sorted(self.items.keys() - items.keys())
        self.items, self.digest = items, frame.digest
        self.bytes = sum(map(item_size, items.values()))
        self.incarnation, self.version = frame.incarnation, frame.version
        return gone
