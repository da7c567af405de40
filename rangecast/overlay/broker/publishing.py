"""Published events of clients, as a block of the log."""

from __future__ import annotations

import hashlib

import numpy as np

from rangecast.errors import UsageError
from rangecast.model.attributes.text import String
from rangecast.model.encoding.events import encode_events
from rangecast.model.io.tables import table_of
from rangecast.model.sets.members import Id, as_id
from rangecast.model.space import Space
from rangecast.model.validation.arguments import check_finite
from rangecast.model.validation.inputs import as_points
from rangecast.overlay.broker import ports
from rangecast.overlay.broker.event_log import Block
from rangecast.overlay.wire.frames import MAX_CONTENT


def published(
    input_: ports.Publish, origin: str, last: int, space: Space, mark: bytes = b""
) -> Block:
    """Return events as a block; numbers and checksum continue from the last event."""
    strings = [attribute.name for attribute in space if isinstance(attribute, String)]
    words: dict[str, list[str | None]] = {}
    ids: list[Id] | None = input_.ids
    if isinstance(input_.events, np.ndarray):
        points = as_points(input_.events, space)
        words = input_.words or {}
        if list(words) != strings:
            raise UsageError(
                f"points require words for the string attributes {strings}, in this "
                f"order; given: {list(words)}"
            )
    else:
        table = table_of(input_.events, "events")
        encoded = encode_events(table, space)
        points = encoded.points
        for name in strings:
            known = name in table.column_names
            words[name] = table[name].to_pylist() if known else [None] * len(points)
        if ids is None and "id" in table.column_names:
            ids = encoded.ids.to_pylist()
    if ids is None:
        ids = list(range(last, last + len(points)))
    else:
        ids = [as_id(id_, "event") for id_ in ids]
    sizes = {len(ids), *map(len, words.values()), len(input_.priorities) or len(points)}
    if sizes - {len(points)}:
        raise UsageError(
            f"{len(points)} events, {len(ids)} ids, {len(input_.priorities)} priorities, "
            f"{[len(texts) for texts in words.values()]} words\n"
            "  hint: give one of each per event, or leave ids and priorities out"
        )
    upto = last + len(points)
    numbers = list(range(last + 1, upto + 1))
    priorities = [check_finite("a priority", priority) for priority in input_.priorities]
    digest = hashlib.blake2b(mark, digest_size=8)
    digest.update(f"{last} {ids} {words}".encode("utf-8", "surrogatepass"))
    digest.update(points.tobytes())
    block = Block(
        *(origin, last, upto, numbers, ids, points, words, priorities, 0, ""),
        mark=digest.digest(),
    )
    large = block.too_large()
    if large is not None:
        raise UsageError(
            f"event {large[0]!r:.80} takes {large[1]:,} bytes, more than a frame can hold\n"
            f"  expected: at most {MAX_CONTENT:,}\n  hint: shorten its texts; nothing was published"
        )
    return block
