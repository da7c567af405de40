"""What a neighbour wants, as a versioned set of items with a digest.

An item is named by a hash of what it says, so equal subscriptions are one item, and a set is the
same on both sides exactly if its digest is. A change applies only to the version that it was made
for; whoever lacks that version asks for a snapshot. So frames that are lost, come twice or late
can't make the two sides drift apart, as counts of references would.

A snapshot comes in parts. They are staged, and swapped in whole: until then the old set is used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from math import inf, isfinite
from typing import Literal, NamedTuple

import msgspec

from rangecast.errors import FilterError, FrameError
from rangecast.merge.cells import Cells
from rangecast.model.filters.filter import Filter
from rangecast.model.space import Space
from rangecast.model.text_attributes import String
from rangecast.overlay.messages import (
    BoxItem,
    Interest,
    Item,
    RangeItem,
    Snapshot,
    TextItem,
    Why,
)

_TOP = (1 << 63) - 1
_FIRST_BYTES = msgspec.msgpack.Encoder()


def name_of(content: object) -> int:
    """Return a number of 63 bits that is the same only for the same content, in every process."""
    data = _FIRST_BYTES.encode(content)
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") & _TOP


def digest_of_names(names: Iterable[str], *more: int) -> int:
    """Return the digest of some names, and of sets with these digests, in any order."""
    return (sum(map(name_of, names)) + sum(more)) & _TOP


def everything(*, instead_of: int = 0) -> BoxItem:
    """Return an item that wants every event; `instead_of` tells apart those of several items."""
    return BoxItem(name_of(("everything", instead_of)), ((),))


EVERYTHING = everything()


@cache
def space_digest(definition: str) -> str:
    """Return a short text that is the same only for the same space, given as TOML."""
    return hashlib.sha256(definition.encode()).hexdigest()[:16]


def strings_of(space: Space) -> frozenset[int]:
    """Return the axes of string attributes."""
    return frozenset(axis for axis, one in enumerate(space) if isinstance(one, String))


def item_of(filter: Filter) -> Item:  # noqa: A002
    """Return a filter as an item."""
    boxes = tuple(
        tuple((axis, float(lo), float(hi)) for axis, lo, hi in box) for box in filter.boxes
    )
    strings = strings_of(filter.space)
    if any(axis in strings or lo in (inf, -inf) for box in boxes for axis, lo, _ in box):
        text = str(filter)
        return TextItem(name_of(text), text)
    return BoxItem(name_of(boxes), boxes)


def range_item(first: int, last: int) -> RangeItem:
    """Return a range of the curve as an item."""
    return RangeItem(name_of((first, last)), first, last)


def filter_of(item: Item, space: Space, cells: Cells | None) -> Filter | None:
    """Return the filter of an item, `None` for a range; refuse one that can't be of this space."""
    if isinstance(item, BoxItem):
        _check_boxes(item, space)
        if item.boxes != EVERYTHING.boxes:  # which has many names
            _check_name(item, item.boxes)
        return Filter(space, item.boxes)
    if isinstance(item, TextItem):
        _check_name(item, item.text)
        try:
            return Filter.parse(item.text, space)
        except FilterError as error:
            raise FrameError(f"an item has a filter that can't be read: {error}") from None
    if cells is None or not item.first <= item.last <= int(cells.top):
        raise FrameError(f"the range {item.first} to {item.last} is not one of this broker's curve")
    _check_name(item, (item.first, item.last))
    return None


def _check_name(item: Item, content: object) -> None:
    """Refuse a name that isn't made of the content: another item may have it by right."""
    if item.name != name_of(content):
        raise FrameError(f"the name {item.name} is not that of its item")


def _check_boxes(item: BoxItem, space: Space) -> None:
    strings, d = strings_of(space), len(space)
    for box in item.boxes:
        before = -1
        for axis, lo, hi in box:
            if not before < axis < d or axis in strings:
                raise FrameError(f"a box mentions attribute {axis} where it may not: {box}")
            if not (lo <= hi and isfinite(lo) and isfinite(hi)):
                raise FrameError(f"a box has the range {lo} to {hi}")
            before = axis
    if not item.boxes:
        raise FrameError("an item has no box")


class ItemSet:
    """Items by name, their digest, and the version that counts changes."""

    def __init__(self, items: Iterable[Item] = (), version: int = 0):
        self.items = {item.name: item for item in items}
        self.digest = sum(self.items) & _TOP
        self.version = version

    def change(self, added: Sequence[Item], removed: Sequence[int]) -> None:
        """Add items that aren't there, remove others that are, and count a version."""
        self.digest = self.digest_after(added, removed)
        for item in added:
            self.items[item.name] = item
        for name in removed:
            del self.items[name]
        self.version += 1

    def digest_after(self, added: Sequence[Item], removed: Sequence[int]) -> int:
        """Return what the digest would be after a change."""
        return (self.digest + sum(item.name for item in added) - sum(removed)) & _TOP


class Change(NamedTuple):
    """What a frame changes of a set."""

    added: list[Item]
    removed: list[int]


class Heard(ItemSet):
    """What a neighbour said that it wants, as far as it is known here."""

    def __init__(self, items: Iterable[Item] = ()):
        super().__init__(items)
        self.incarnation = 0
        """Of the neighbour when it said so; 0: it never did."""
        self._staged: Snapshot | None = None
        """A part of the snapshot that is coming in; it stands for all."""
        self._parts: dict[int, list[Item]] = {}

    def lacks(self, incarnation: int, version: int, digest: int) -> Why | Literal[""]:
        """Return why a snapshot is needed to get to this version; "": it isn't."""
        if incarnation < self.incarnation:
            return ""  # from before the neighbour's last start
        if incarnation > self.incarnation:
            return "incarnation"
        if version > self.version:
            return "gap"
        return "digest" if version == self.version and digest != self.digest else ""

    def change_of(self, frame: Interest) -> Change | Why | None:
        """Return what an Interest changes, or why it can't be used; `None`: it came before."""
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
        return Change(frame.added, frame.removed)

    def stage(self, frame: Snapshot) -> tuple[list[Item] | None, bool]:
        """Keep a part; return all items once they are there, and whether others were interrupted.

        A part from before what is known or staged is nothing.
        """
        new = frame.incarnation, frame.version
        if new < (self.incarnation, self.version):
            return None, False
        staged, interrupted = self._staged, False
        if staged is None or new > (staged.incarnation, staged.version):
            interrupted = staged is not None
            self._staged, self._parts = frame, {}
        elif new < (staged.incarnation, staged.version):
            return None, False
        elif (frame.parts, frame.digest) != (staged.parts, staged.digest):
            raise FrameError("the parts of a snapshot don't agree on how many there are")
        self._parts[frame.part] = frame.items
        if len(self._parts) < frame.parts:
            return None, interrupted
        items = [item for part in range(frame.parts) for item in self._parts.get(part, [])]
        self._staged, self._parts = None, {}
        if sum(item.name for item in items) & _TOP != frame.digest:
            raise FrameError("a snapshot doesn't have the digest that it says")
        return items, interrupted

    @property
    def is_staging(self) -> bool:
        """Whether some parts of a snapshot are there, and others not yet."""
        return self._staged is not None

    def swap(self, frame: Snapshot, items: list[Item]) -> Change:
        """Take over a whole snapshot; return what it changes."""
        now = {item.name: item for item in items}
        change = Change(
            [item for name, item in now.items() if name not in self.items],
            [name for name in self.items if name not in now],
        )
        self.items, self.digest = now, sum(now) & _TOP
        self.incarnation, self.version = frame.incarnation, frame.version
        return change
