"""Items of interest: a few bytes that brokers exchange, keep and compare.

Its boxes are packed (`packing`), and many items become arrays at once (`Batch.boxes`), so that
kernels process them. Nothing else is kept of an item.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from math import isfinite

import msgspec
import numpy as np

from rangecast.errors import FilterError, FrameError
from rangecast.model.attributes.text import String
from rangecast.model.boxes import Boxes
from rangecast.model.filters.filter import Filter
from rangecast.model.shapes.verification.places import places_of, without_places
from rangecast.model.space import Space
from rangecast.overlay.interest.range_line import Curve
from rangecast.overlay.wire.frames import (
    MAX_CONTENT,
    BoxItem,
    Item,
    RangeItem,
    TextItem,
    item_size,
)
from rangecast.overlay.wire.packing import TERM, pack, pack_many, terms_of, unpack_many

_TOP = (1 << 63) - 1
_FIRST_BYTES = msgspec.msgpack.Encoder()


def name_of(content: object) -> int:
    """Return a 63-bit hash of the content, equal in every process."""
    data = content if isinstance(content, bytes) else _FIRST_BYTES.encode(content)
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") & _TOP


# ---- interest


class ResolvedItem(msgspec.Struct, frozen=True, gc=False):
    """An item, and its boxes with the word numbers of this broker; `None`: it is a range."""

    item: Item
    boxes: bytes | None


class Batch:
    """Items that are added or removed together, in the form that structures take."""

    def __init__(self, space: Space, wanted: list[ResolvedItem]):
        self.wanted = wanted
        self._space = space

    def __len__(self) -> int:
        return len(self.wanted)

    def __iter__(self) -> Iterator[ResolvedItem]:
        return iter(self.wanted)

    @cached_property
    def names(self) -> list[int]:
        """Names of all items."""
        return [item.item.name for item in self.wanted]

    @cached_property
    def ranges(self) -> list[RangeItem]:
        """The items that are ranges."""
        return [item.item for item in self.wanted if isinstance(item.item, RangeItem)]

    @cached_property
    def boxes(self) -> Boxes:
        """The items that aren't ranges, by name."""
        names, packed = [], []
        for item in self.wanted:
            if item.boxes is not None:
                names.append(item.item.name)
                packed.append(item.boxes)
        lo, hi, owner = unpack_many(packed, len(self._space))
        ids = np.array(names, np.int64)
        return Boxes.of(lo, hi, owner=owner, ids=ids, space=self._space)

    @cached_property
    def without_ranges(self) -> Batch:
        """Batch for brokers that don't understand ranges: ranges become everything."""
        if not self.ranges:
            return self
        items = [ResolvedItem(item.item, item.boxes or b"") for item in self.wanted]
        return Batch(self._space, items)


def everything(*, instead_of: int = 0) -> BoxItem:
    """Return an item that matches every event; `instead_of` makes it distinct."""
    return BoxItem(name_of(("everything", instead_of)), b"")


EVERYTHING = everything()


def range_item(first: int, last: int) -> RangeItem:
    """Return a range of the curve as an item."""
    return RangeItem(name_of((first, last)), first, last)


def wanted_of(filter: Filter) -> ResolvedItem:  # noqa: A002
    """Return a filter as an item: shapes become their covering boxes."""
    filter = _cover_of(filter)  # noqa: A001
    packed, strings = pack(filter.boxes), strings_of(filter.space)
    for box in filter.boxes:
        for axis, lo, hi in box:
            if axis in strings or not (isfinite(lo) and isfinite(hi)):
                text = str(filter)
                return ResolvedItem(TextItem(name_of(text), text), packed)
    return ResolvedItem(BoxItem(name_of(packed), packed), packed)


def _cover_of(filter: Filter) -> Filter:  # noqa: A002
    """Return a filter without place words, which no event has: they are verified locally."""
    places = places_of(filter.space)
    if places is None:
        return filter
    lo, hi = filter.arrays()
    lo[:, places.axes], hi[:, places.axes] = -np.inf, np.inf
    return Filter.from_boxes(filter.space, lo, hi)


def wanted_of_boxes(boxes: Boxes, space: Space) -> list[ResolvedItem]:
    """Return subscriptions as items: shapes become their covering boxes."""
    boxes = without_places(boxes)
    is_text = boxes.mentions & ~(np.isfinite(boxes.lo) & np.isfinite(boxes.hi))
    for axis in strings_of(space):
        is_text[:, axis] = boxes.mentions[:, axis]
    texts = np.zeros(boxes.rows, np.bool_)
    texts[boxes.owner[is_text.any(axis=1)]] = True
    wanted = [ResolvedItem(BoxItem(name_of(packed), packed), packed) for packed in pack_many(boxes)]
    for row in np.flatnonzero(texts).tolist():
        own = slice(*boxes.box_offsets[row : row + 2].tolist())
        wanted[row] = wanted_of(Filter.from_boxes(space, boxes.lo[own], boxes.hi[own]))
    return wanted


def strings_of(space: Space) -> frozenset[int]:
    """Return the axes of string attributes."""
    return frozenset(axis for axis, attribute in enumerate(space) if isinstance(attribute, String))


# ---- what neighbours say


def with_local_words(
    items: Sequence[Item], space: Space, curve: Curve | None
) -> list[ResolvedItem]:
    """Return items with the word numbers of this broker; reject items of another space."""
    if any(item_size(item) > MAX_CONTENT for item in items):
        raise FrameError(f"an item has at most {MAX_CONTENT:,} bytes")
    _check_boxes([item.boxes for item in items if isinstance(item, BoxItem)], space)
    return [_with_local_words_of(item, space, curve) for item in items]


def _with_local_words_of(item: Item, space: Space, curve: Curve | None) -> ResolvedItem:
    if isinstance(item, BoxItem):
        if item.boxes:  # everything has many names
            _check_name(item, item.boxes)
        return ResolvedItem(item, item.boxes)
    if isinstance(item, TextItem):
        _check_name(item, item.text)
        try:
            return ResolvedItem(item, pack(Filter.parse(item.text, space).boxes))
        except FilterError as error:
            raise FrameError(f"an item has a filter that can't be read: {error}") from None
    if curve is None or not item.first <= item.last <= curve.top:
        raise FrameError(f"the range {item.first} to {item.last} is not on this broker's curve")
    _check_name(item, (item.first, item.last))
    return ResolvedItem(item, None)


def _check_name(item: Item, content: object) -> None:
    """Reject a name that isn't the hash of the content."""
    if item.name != name_of(content):
        raise FrameError(f"the name {item.name} doesn't match its item")


def _check_boxes(packed: list[bytes], space: Space) -> None:
    """Reject boxes that aren't packed as by `pack`, with finite ranges of this space."""
    if not any(packed):  # none, or everything
        return
    if any(len(bounds) % TERM.itemsize for bounds in packed):
        raise FrameError(f"a box is packed in terms of {TERM.itemsize} bytes")
    terms, item = terms_of(packed)
    axis, lo, hi = terms["axis"], terms["lo"], terms["hi"]
    is_good = (lo <= hi) & np.isfinite(lo) & np.isfinite(hi)
    is_good &= (axis < len(space)) & ~np.isin(axis, list(strings_of(space)))
    is_first = np.diff(item, prepend=-1) > 0
    box = terms["box"].astype(np.int64)
    step, rise = np.diff(box, prepend=0), np.diff(axis.astype(np.int64), prepend=0)
    is_good &= np.where(is_first, box == 0, (step == 1) | ((step == 0) & (rise > 0)))
    if not is_good.all():
        raise FrameError(f"a box has an invalid term: {terms[~is_good][0]}")
