"""The frames that brokers send one another, in a compact binary form and in JSON.

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
"""Of a frame; a longer one is rejected before it is read."""
MAX_CONTENT = 8 << 20
"""Bytes of the items or events of a frame, so that the frame stays below `MAX_BYTES`. A single
one that is larger is rejected where it comes in."""

Name = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"\A[^\x00-\x1f\x7f-\x9f]*\Z")]
"""Of a broker: it is put into logs and shown to people."""
Text = Annotated[str, Meta(max_length=2_000)]
Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Place = Annotated[int, Meta(ge=0)]
"""On the curve of a summary."""
Token = Annotated[str, Meta(min_length=1, max_length=500)]
Why = Literal["gap", "digest", "incarnation"]
"""The part of a version or digest that doesn't fit."""
Cursors = dict[Name, Count]
"""By origin: a number of an event of that broker."""


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
"""Bytes of an item beside its boxes or text, at most; and of an event beside its values."""


def text_size(text: str | None) -> int:
    """Return how many bytes a text takes in a frame, at most."""
    return 5 if text is None else 5 + (len(text) if text.isascii() else 4 * len(text))


def item_size(item: Item) -> int:
    """Return how many bytes an item takes in a frame, at most."""
    if isinstance(item, BoxItem):
        return _HEAD + len(item.boxes)
    return _HEAD + text_size(item.text) if isinstance(item, TextItem) else _HEAD


def cut_items(items: Iterable[Item], max_items: int) -> Iterator[list[Item]]:
    """Yield items in lists that fit into frames: at most this many, and not too many bytes."""
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
    """The first frame of a link, in both directions; it comes again until it is answered."""

    broker: Name
    incarnation: Count
    space: str
    """Digest of the space."""
    protocol: int = PROTOCOL
    cells: str = ""
    """Digest of the cells of ranges; none: only boxes are understood."""
    version: Count = 0
    """Version and digest of what was advertised over this link so far."""
    digest: Count = 0
    kept: Cursors = {}
    """By origin: the last event that is on disk here."""
    reach: list[Name] = []
    """The brokers behind this one, as far as known."""
    seen: Count = 0
    """The incarnation of the other side, if its Hello was seen."""
    log: Annotated[str, Meta(max_length=64)] = ""
    """Distinguishes the log of this broker from any other; empty: not given."""
    epochs: Annotated[list[Annotated[str, Meta(max_length=64)]], Meta(max_length=100)] = []
    """The last starts that have written to it, the newest first."""
    mark: Annotated[bytes, Meta(max_length=64)] = b""
    """The checksum that came with the last event of the other side that is on disk here: both
    sides mean the same event, and all before it, if they have the same."""


class Interest(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="interest"):
    """A change of what its sender wants: it leads from one version to the next."""

    incarnation: Count
    before: Count
    version: Count
    digest: Count
    """Of all items, after the change."""
    added: list[Item] = []
    removed: list[Count] = []


class Snapshot(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="snapshot"):
    """A part of everything that its sender wants."""

    incarnation: Count
    version: Count
    digest: Count
    part: Count = 0
    parts: Annotated[int, Meta(ge=1, le=1 << 16)] = 1
    items: list[Item] = []


class Resync(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="resync"):
    """A request for a snapshot."""

    version: Count
    """The version that is there."""
    why: Why


class Events(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="events"):
    """Of the events of one origin, numbered after `after` up to `upto`: those that are wanted."""

    origin: Name
    after: Count
    upto: Count
    numbers: list[Count]
    ids: list[Id]
    points: bytes
    """Coordinates, float64, little-endian, event by event."""
    words: dict[str, list[str | None]] = {}
    """The values of string attributes, which brokers number differently."""
    priorities: list[float] = []
    """One per event, or none: all 0."""
    hops: Count = 1
    texts: list[bytes] = []
    """One per event, or none: the event as it was given. Brokers don't read it."""
    form: Annotated[str, Meta(max_length=50)] = ""
    """The format of these texts."""
    mark: Annotated[bytes, Meta(max_length=64)] = b""
    """The checksum of the origin's log up to the last of these: see `Hello`."""
    lost: bool = False
    """Events before these are gone; whether they matched is unknown."""


class Taken(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="taken"):
    """By origin: all events up to this one are on disk, or weren't wanted."""

    kept: Cursors


class PropagationQuery(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag="propagation-query"
):
    """A question: is everything up to this version known all the way behind you?"""

    token: Token
    incarnation: Count
    version: Count


class PropagationReply(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag="propagation-reply"
):
    """The answer: yes."""

    token: Token


class Reject(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="reject"):
    """The last frame of a link: its sender can't have it."""

    kind: Annotated[str, Meta(max_length=50)]
    """The kind of fault, in a word: see `Broker`."""
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
    | Taken
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
    Taken,
    PropagationQuery,
    PropagationReply,
    Heartbeat,
    Reject,
)


def _without_names(kind: type[Frame], tag: int) -> type[Struct]:
    """Return the same frame as a plain list of its fields, after a small number."""
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
    """Return the frame of these bytes; anything else is a `FrameError`."""
    compact = _decoded(_unpack, data, max_bytes)
    kind = _NAMED[type(compact)]
    return kind(**{name: getattr(compact, name) for name in _FIELDS[kind]})


def encode_json(frame: Frame) -> bytes:
    """Return a frame as JSON."""
    return _to_json.encode(frame)


def decode_json(data: bytes | str, *, max_bytes: int = MAX_BYTES) -> Frame:
    """Return the frame of a JSON text; anything else is a `FrameError`."""
    frame: Frame = _decoded(_of_json, data, max_bytes)
    return frame


def _decoded(decoder: Any, data: bytes | str, max_bytes: int) -> Any:
    if len(data) > max_bytes:
        raise FrameError(f"a frame has at most {max_bytes:,} bytes; given: {len(data):,}")
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise FrameError(f"not a frame: {error}") from None
