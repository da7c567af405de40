"""Frames between brokers, in a compact binary form and in JSON.

    encode(Heartbeat(incarnation=1, version=7, digest=0))     # bytes, MessagePack
    decode(data)                                         # a frame, or a FrameError
    encode_json, decode_json                             # the same with names, for people

A frame is checked as far as that is possible without knowing a space: types, lengths, ranges of
numbers. A broker checks the rest (`interest`, `eventlog`). Whatever bytes come in, the only error
is `FrameError`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from rangecast.errors import FrameError
from rangecast.model.sets.members import Id
from rangecast.overlay.wire.packing import TERM, unpack

PROTOCOL = 2
"""The version of all frames; a broker rejects a link whose Hello has another one."""
MAX_BYTES = 16 << 20
"""Maximum bytes of a frame; a longer one is rejected before it is decoded."""
MAX_CONTENT = 8 << 20
"""Maximum bytes of the items or events of a frame, so that the frame stays below `MAX_BYTES`. A
single larger item is rejected on arrival.
"""

Name = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"\A[^\x00-\x1f\x7f-\x9f]*\Z")]
"""Name of a broker, as used in logs and displays."""
Text = Annotated[str, Meta(max_length=2_000)]
Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Place = Annotated[int, Meta(ge=0)]
"""Index on the curve of a summary."""
Token = Annotated[str, Meta(min_length=1, max_length=500)]
Why = Literal["gap", "digest", "incarnation"]
"""Part of a version or digest that doesn't match."""
Cursors = dict[Name, Count]
"""By origin: the number of an event of that broker."""


# ---- items of an interest


class BoxItem(Struct, frozen=True, array_like=True, gc=False, tag="b"):
    """A subscription as boxes of finite coordinates, packed (`items`). Empty: everything."""

    name: Count
    boxes: bytes

    def __repr__(self) -> str:
        readable = not len(self.boxes) % TERM.itemsize
        return f"BoxItem({self.name}, {unpack(self.boxes) if readable else self.boxes!r})"


class TextItem(Struct, frozen=True, array_like=True, gc=False, tag="t"):
    """A subscription as a filter text: it mentions strings, which brokers number differently."""

    name: Count
    text: str


class RangeItem(Struct, frozen=True, array_like=True, gc=False, tag="r"):
    """A range on the curve of a summary; both sides have the same cells."""

    name: Count
    first: Place
    last: Place


Item = BoxItem | TextItem | RangeItem
_HEAD = 32
"""Maximum bytes of an item besides its boxes or text; and of an event besides its values."""


def text_size(text: str | None) -> int:
    """Return the maximum bytes of a text in a frame."""
    return 5 if text is None else 5 + (len(text) if text.isascii() else 4 * len(text))


def item_size(item: Item) -> int:
    """Return the maximum bytes of an item in a frame."""
    if isinstance(item, BoxItem):
        return _HEAD + len(item.boxes)
    return _HEAD + text_size(item.text) if isinstance(item, TextItem) else _HEAD


def cut_items(items: Iterable[Item], max_items: int) -> Iterator[list[Item]]:
    """Yield lists of items that fit into frames: at most this many, and within the bytes."""
    part: list[Item] = []
    size = 0
    for item in items:
        size += item_size(item)
        if part and (len(part) >= max_items or size > MAX_CONTENT):
            yield part
            part, size = [], item_size(item)
        part.append(item)
    if part:
        yield part


# ---- frames


class Hello(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="hello"):
    """The first frame of a link, in both directions; repeated until it is answered."""

    broker: Name
    incarnation: Count
    space: str
    """Digest of the space."""
    protocol: int = PROTOCOL
    cells: str = ""
    """Digest of the cells of ranges; empty: only boxes are understood."""
    version: Count = 0
    """Version and digest of the items advertised over this link so far."""
    digest: Count = 0
    kept: Cursors = {}
    """By origin: the last event on disk here."""
    reach: list[Name] = []
    """The brokers behind this one, as far as known."""
    seen: Count = 0
    """Incarnation of the other side, if its Hello has arrived."""
    log: Annotated[str, Meta(max_length=64)] = ""
    """Distinguishes the log of this broker from any other; empty: not given."""
    epochs: Annotated[list[Annotated[str, Meta(max_length=64)]], Meta(max_length=100)] = []
    """The last starts that have written to it, the newest first."""
    mark: Annotated[bytes, Meta(max_length=64)] = b""
    """Checksum of the last event of the other side that is on disk here: if it is equal on both
    sides, so is the event and all before it.
    """


class Interest(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="interest"):
    """A change of the sender's interest, from one version to the next."""

    incarnation: Count
    before: Count
    version: Count
    digest: Count
    """Digest of all items after the change."""
    added: list[Item] = []
    removed: list[Count] = []


class Snapshot(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="snapshot"):
    """A part of the sender's whole interest."""

    incarnation: Count
    version: Count
    digest: Count
    part: Count = 0
    parts: Annotated[int, Meta(ge=1, le=1 << 16)] = 1
    items: list[Item] = []


class Resync(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="resync"):
    """A request for a snapshot."""

    version: Count
    """The version that the sender has."""
    why: Why


class Events(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="events"):
    """The matching events of one origin, among those numbered after `after` up to `upto`."""

    origin: Name
    after: Count
    upto: Count
    numbers: list[Count]
    ids: list[Id]
    points: bytes
    """Coordinates, float64, little-endian, event by event."""
    words: dict[str, list[str | None]] = {}
    """Values of string attributes, which brokers number differently."""
    priorities: list[float] = []
    """One per event, or none: all 0."""
    hops: Count = 1
    texts: list[bytes] = []
    """The original events, one each, or none. Brokers don't read them."""
    form: Annotated[str, Meta(max_length=50)] = ""
    """The format of `texts`."""
    mark: Annotated[bytes, Meta(max_length=64)] = b""
    """Checksum of the origin's log up to the last event here: see `Hello`."""
    lost: bool = False
    """Whether events before these are lost; whether they matched is unknown."""


class EventsAck(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="taken"):
    """By origin: all events up to this one are on disk, or didn't match."""

    kept: Cursors


class PropagationQuery(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag="propagation-query"
):
    """Query: is everything up to this version known to all brokers behind you?"""

    token: Token
    incarnation: Count
    version: Count


class PropagationReply(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag="propagation-reply"
):
    """Positive answer to a query."""

    token: Token


class Reject(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="reject"):
    """The last frame of a link: its sender rejects the link."""

    kind: Annotated[str, Meta(max_length=50)]
    """Kind of fault, in one word: see `Broker`."""
    why: Text


class Heartbeat(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="heartbeat_interval"):
    """Heartbeat with version and digest, to detect lost frames."""

    incarnation: Count
    version: Count
    digest: Count
    reach: Count = 0
    """Digest of the brokers behind this one."""
    kept: Cursors = {}


Frame = (
    Hello
    | Interest
    | Snapshot
    | Resync
    | Events
    | EventsAck
    | PropagationQuery
    | PropagationReply
    | Heartbeat
    | Reject
)
_KINDS: tuple[type[Frame], ...] = (
    Hello,
    Interest,
    Snapshot,
    Resync,
    Events,
    EventsAck,
    PropagationQuery,
    PropagationReply,
    Heartbeat,
    Reject,
)


def _without_names(kind: type[Frame], tag: int) -> type[Struct]:
    """Return a frame as a list of its kind number and its fields."""
    fields: list[Any] = []
    for field in msgspec.structs.fields(kind):
        if field.default is not msgspec.NODEFAULT:
            fields.append((field.name, field.type, field.default))
        elif field.default_factory is not msgspec.NODEFAULT:
            factory = msgspec.field(default_factory=field.default_factory)
            fields.append((field.name, field.type, factory))
        else:
            fields.append((field.name, field.type))
    fields.sort(key=len)  # a default may not come before none
    return msgspec.defstruct(f"_{kind.__name__}", fields, array_like=True, tag=tag, frozen=True)


_COMPACT = {kind: _without_names(kind, tag) for tag, kind in enumerate(_KINDS)}
_NAMED = {compact: kind for kind, compact in _COMPACT.items()}
_FIELDS = {kind: compact.__struct_fields__ for kind, compact in _COMPACT.items()}
_AnyCompact: Any = None
for _compact in _COMPACT.values():
    _AnyCompact = _compact if _AnyCompact is None else _AnyCompact | _compact
_pack = msgspec.msgpack.Encoder()
_unpack = msgspec.msgpack.Decoder(_AnyCompact)
_to_json = msgspec.json.Encoder()
_of_json: msgspec.json.Decoder[Frame] = msgspec.json.Decoder(Frame)


def encode(frame: Frame) -> bytes:
    """Return a frame as bytes."""
    kind = type(frame)
    fields = {name: getattr(frame, name) for name in _FIELDS[kind]}
    return _pack.encode(_COMPACT[kind](**fields))


def decode(data: bytes, *, max_bytes: int = MAX_BYTES) -> Frame:
    """Decode a frame; raise a `FrameError` for anything else."""
    compact = _decoded(_unpack, data, max_bytes)
    kind = _NAMED[type(compact)]
    return kind(**{name: getattr(compact, name) for name in _FIELDS[kind]})


def encode_json(frame: Frame) -> bytes:
    """Return a frame as JSON."""
    return _to_json.encode(frame)


def decode_json(data: bytes | str, *, max_bytes: int = MAX_BYTES) -> Frame:
    """Decode a frame from JSON; raise a `FrameError` for anything else."""
    frame: Frame = _decoded(_of_json, data, max_bytes)
    return frame


def _decoded(decoder: Any, data: bytes | str, max_bytes: int) -> Any:
    if len(data) > max_bytes:
        raise FrameError(f"a frame may have at most {max_bytes:,} bytes; given: {len(data):,}")
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise FrameError(f"not a frame: {error}") from None
