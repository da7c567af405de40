"""Append-only store of records, compressed in blocks, and read back one by one.

Records of subscriptions differ in little: a filter of 130 characters takes about 30 bytes with all
else that is known of its subscription, and 350 as objects. A block is encoded as JSON and
compressed once it is full. A released record leaves its block when few are left in it, and the
block goes with its last record, so the memory follows the records that stay.

One thread writes; any thread reads.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar

import msgspec
import pyarrow as pa

Record = TypeVar("Record", bound=msgspec.Struct)

BLOCK = 64
"""Records of a block: reading one takes as long as decoding all of these."""
_REPACKED = (BLOCK // 4, BLOCK // 16)
"""A block is packed again, without its released records, when this many are left."""
_ALL = (1 << BLOCK) - 1
_LENGTH = 4
"""Bytes before a packed block: its size before it was compressed."""
_codec = pa.Codec("zstd", 1)
_encode = msgspec.json.Encoder().encode


class PackedRecords(Generic[Record]):
    """Records of one kind, by place: 0, 1, 2 ... in the order in which they were added."""

    def __init__(self, kind: type[Record]):
        self._decode = msgspec.json.Decoder(list[kind | None]).decode  # type: ignore[valid-type]
        self._blocks: list[bytes | list[Record | None] | None] = []
        """The last one is open: a list. `None`: nothing of it is left."""
        self._kept = array("Q")
        """By block, a bit for each record that wasn't released."""
        self._read: tuple[int, Sequence[Record | None]] = -1, ()
        """The packed block that was read last."""

    @property
    def memory(self) -> int:
        """Size in bytes of the packed blocks."""
        packed = sum(len(block) for block in self._blocks if isinstance(block, bytes))
        return packed + 8 * (len(self._blocks) + len(self._kept))

    def append(self, record: Record) -> int:
        """Add a record; return its place."""
        last = self._blocks[-1] if self._blocks else None
        if not isinstance(last, list) or len(last) == BLOCK:
            if isinstance(last, list):
                self._pack(len(self._blocks) - 1, last)
            last = []
            self._kept.append(_ALL)
            self._blocks.append(last)
        last.append(record)
        return (len(self._blocks) - 1) * BLOCK + len(last) - 1

    def extend(self, records: Sequence[Record], text: bytes | None = None) -> int:
        """Add records; return the place of the first. `text`: their JSON, if it is known."""
        last = self._blocks[-1] if self._blocks else None
        is_open = isinstance(last, list) and len(last) < BLOCK
        if text is None or len(records) != BLOCK or is_open:
            places = [self.append(record) for record in records]
            return places[0]
        if isinstance(last, list):
            self._pack(len(self._blocks) - 1, last)
        self._kept.append(_ALL)
        self._blocks.append(_packed(text))
        return (len(self._blocks) - 1) * BLOCK

    def get(self, place: int) -> Record | None:
        """Return the record at a place; `None` if it was released and has left."""
        number, slot = divmod(place, BLOCK)
        block = self._blocks[number]
        if isinstance(block, bytes):
            read, records = self._read
            if read != number:
                records = self._unpacked(block)
                self._read = number, records
            return records[slot]
        return None if block is None else block[slot]

    def release(self, place: int) -> None:
        """Let a record go: nothing asks for its place any more."""
        number, slot = divmod(place, BLOCK)
        kept = self._kept[number] & ~(1 << slot)
        self._kept[number] = kept
        block, left = self._blocks[number], kept.bit_count()
        if isinstance(block, list) and number == len(self._blocks) - 1:
            block[slot] = None
        elif not left:
            self._blocks[number] = None
        elif left in _REPACKED and isinstance(block, bytes):
            self._pack(number, self._unpacked(block))

    def frozen(self) -> FrozenRecords[Record]:
        """Return the records as they are now, whatever is added or released later."""
        *packed, last = self._blocks or [None]
        return FrozenRecords(self, [*packed, last.copy() if isinstance(last, list) else last])

    def _pack(self, number: int, records: Sequence[Record | None]) -> None:
        kept = self._kept[number]
        text = _encode([record if kept >> i & 1 else None for i, record in enumerate(records)])
        self._blocks[number] = _packed(text) if kept else None

    def _unpacked(self, block: bytes) -> list[Record | None]:
        size = int.from_bytes(block[:_LENGTH], "little")
        packed = memoryview(block)[_LENGTH:]
        records: list[Record | None] = self._decode(_codec.decompress(packed, size))
        return records


def _packed(text: bytes) -> bytes:
    packed: bytes = _codec.compress(text, asbytes=True)
    return len(text).to_bytes(_LENGTH, "little") + packed


class FrozenRecords(Generic[Record]):
    """The records of a store at one moment."""

    def __init__(
        self, store: PackedRecords[Record], blocks: list[bytes | list[Record | None] | None]
    ):
        self._store = store
        self._blocks = blocks

    def at(self, places: Iterable[int]) -> Iterator[Record]:
        """Yield the records at places; each block is decoded once if the places ascend."""
        number, records = -1, list[Record | None]()
        for place in places:
            if place // BLOCK != number:
                number = place // BLOCK
                block = self._blocks[number]
                assert block is not None
                records = block if isinstance(block, list) else self._store._unpacked(block)
            record = records[place % BLOCK]
            assert record is not None
            yield record
