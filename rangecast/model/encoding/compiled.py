"""Generated code that encodes single events of a space.

A generic loop over a dict looks up the attribute and type of each value. The generated code has a
few lines per attribute instead: they fetch the value, handle the common types inline, and leave the
rest to `columns.coordinate`. For a space with the number `price`:

    v0 = get('price')
    if type(v0) is float and lo0 <= v0 <= hi0:
        v0 += 0.0
    elif v0 is None:
        v0, is_partial = MISSING, True
    else:
        v0 = coordinate(a0, v0, nan=nan)

It returns `None` for an event that it does not handle, valid or not. The caller then encodes it
value by value, and raises the error if there is one.

`plain_points` encodes a list of events in the same way, if all their values are of the types that
are handled inline: a table of a few events takes hundreds of microseconds to make.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

import numpy as np

from rangecast.kernels.arrays import F64
from rangecast.model.attributes.base import MISSING, Attribute, Boolean, Integer, Number
from rangecast.model.attributes.field_paths import value_at
from rangecast.model.attributes.patterns import (
    ORDER_BYTES,
    Patterns,
    Text,
    TextOrder,
    order_of,
)
from rangecast.model.attributes.residuals import Residual
from rangecast.model.attributes.text import OTHER, Category, Hierarchy, String
from rangecast.model.attributes.text_store import TEXTS
from rangecast.model.attributes.timestamps import EPOCH_UNITS, Timestamp
from rangecast.model.encoding.columns import coordinate
from rangecast.model.space import Space
from rangecast.model.text.single_text import STRIDE

Encoder = Callable[[Any, bool, str], F64 | None]
"""(event, ignore_unknown, nan) -> its point, (1, d); `None`: it isn't taken."""
ListEncoder = Callable[[Sequence[Any], bool, F64], bool]
"""(events, ignore_unknown, points) -> whether all are taken; if so, the points are written."""
TextEncoder = Callable[[Any, bool, str, int], tuple[F64, tuple[str | None, ...]] | None]
"""`Encoder` with the address of records of texts: its point, with addresses, and its texts."""
_EXACT = 2.0**53
"""Integers up to this one are doubles."""


def compiled_encoder(space: Space) -> Encoder:
    """Return the cached encoder of a space."""
    kept = space.__dict__
    made: Encoder = kept.get("_encoder") or kept.setdefault("_encoder", _compile(space, []))
    return made


def encoder_without_texts(space: Space) -> Encoder:
    """Return the cached encoder whose points lack what only conditions on texts read."""
    kept = space.__dict__
    if "_encoder_without_texts" not in kept:
        unread = [attribute for attribute in space if isinstance(attribute, Patterns)]
        kept["_encoder_without_texts"] = _compile(space, unread)
    made: Encoder = kept["_encoder_without_texts"]
    return made


def encoder_of_texts(space: Space) -> TextEncoder:
    """Return the cached encoder that returns texts apart, instead of storing them."""
    kept = space.__dict__
    if "_encoder_of_texts" not in kept:
        kept["_encoder_of_texts"] = _compile(space, [], apart=True)
    made: TextEncoder = kept["_encoder_of_texts"]
    return made


def plain_points(
    events: Any, space: Space, *, ignore_unknown: bool = False, texts: bool = True
) -> F64 | None:
    """Return the points of a list of plain dicts without ids; `None`: the list isn't taken.

    texts   see `EventColumns.texts`
    """
    if type(events) is not list or not events or "id" in space.fields:
        return None
    if texts and space.patterns:
        return None
    kept = space.__dict__
    if "_encoder_of_lists" not in kept:
        unread = [attribute for attribute in space if isinstance(attribute, Patterns)]
        kept["_encoder_of_lists"] = _compile(space, unread, many=True)
    encode: ListEncoder = kept["_encoder_of_lists"]
    points = np.empty((len(events), len(space)))
    return points if encode(events, ignore_unknown, points) else None


def _compile(
    space: Space, unread: Sequence[Attribute], *, apart: bool = False, many: bool = False
) -> Any:
    names: dict[str, Any] = {
        "MISSING": MISSING,
        "OTHER": OTHER,
        "coordinate": coordinate,
        "value_at": value_at,
        "empty": np.empty,
        "order_of": order_of,
        "put": TEXTS.put,
        "pack_into": Struct(f"{len(space)}d").pack_into,
        "shape": (1, len(space)),
        "known": space.fields | {"id"},
    }
    unvalued = [
        residual
        for residual in space
        if isinstance(residual, Residual) and not isinstance(residual, Patterns)
    ]
    fetched = _fetched(space, unvalued)
    leave = "return False" if many else "return None"
    lines = ["is_partial = False", *(f"k{n} = get({key!r})" for key, n in fetched.items())]
    texts: list[int] = []
    order = sorted(range(len(space)), key=lambda axis: isinstance(space.attributes[axis], Patterns))
    for axis in order:  # texts are stored last: by then the other values are known to be right
        attribute = space.attributes[axis]
        if attribute in unvalued or attribute in unread:
            names[f"v{axis}"] = MISSING
            continue
        path = attribute.path or (attribute.name,)
        source = f"k{fetched[path[0]]}" if len(path) == 1 else f"value_at(event, p{axis})"
        names |= {f"a{axis}": attribute, f"p{axis}": path}
        if apart and isinstance(attribute, Patterns):
            lines += [f"v{axis} = t{axis} = {source}", *_text_apart(axis, STRIDE * len(texts))]
            texts.append(axis)
        else:
            other = leave if many else f"v{axis} = coordinate(a{axis}, v{axis}, nan=nan)"
            lines += [f"v{axis} = {source}", *_branches(attribute, axis, names, other)]
    packed = ", ".join(f"v{axis}" for axis in range(len(space)))
    has_id = "'id' in event or " if many else ""
    lines += [
        # With all fields there, and no others, none can be unknown.
        f"if is_partial or len(event) != {len(fetched)}:",
        f"    if {has_id}not ignore_unknown and not event.keys() <= known:",
        f"        {leave}",
        *(line for residual in unvalued for line in _rejected(residual, leave)),
    ]
    if many:
        names["size"] = 8 * len(space)
        lines += [f"pack_into(points, at, {packed})", "at += size"]
        head = ["def encode(events, ignore_unknown, points):", "    at = 0", "    try:"]
        head += ["        for event in events:"]
        lines = ["if type(event) is not dict:", f"    {leave}", "get = event.get", *lines]
        body = ["            " + line for line in lines]
        tail = ["    except Exception:", "        return False", "    return True"]
    else:
        result = f"point, ({''.join(f't{axis}, ' for axis in texts)})" if apart else "point"
        lines += ["point = empty(shape)", f"pack_into(point, 0, {packed})", f"return {result}"]
        parameters = "event, ignore_unknown, nan" + ", records" * apart
        head = [f"def encode({parameters}):", "    if type(event) is not dict:"]
        head += ["        return None", "    get = event.get", "    try:"]
        body = ["        " + line for line in lines]
        tail = ["    except Exception:", "        return None"]
    source = "\n".join([*head, *body, *tail])
    exec(compile(source, "<encoder of a space>", "exec"), names)
    return names["encode"]


def _fetched(space: Space, unvalued: list[Residual]) -> dict[str, int]:
    """Return the event fields to look up, each with its number."""
    names = {attribute.name for attribute in unvalued}
    valued = (
        attribute.path[0] if attribute.path else attribute.name
        for attribute in space
        if attribute.name not in names
    )
    return {field: number for number, field in enumerate(sorted(space.fields & set(valued)))}


def _rejected(attribute: Residual, leave: str) -> list[str]:
    """Return the source lines that leave events with a value of an attribute without any."""
    return [f"    if get({attribute.name!r}) is not None:", f"        {leave}"]


def _text_apart(axis: int, offset: int) -> list[str]:
    """Return the source lines that make v<axis> the address of the record of a text."""
    v = f"v{axis}"
    return [
        f"if type({v}) is str:",
        f"    if not {v}.isascii():",
        f"        {v}.encode()  # rejects a lone surrogate",
        f"    {v} = records + {offset}",
        f"elif {v} is None:",
        f"    {v}, is_partial = MISSING, True",
        "else:",
        "    return None",
    ]


def _branches(attribute: Attribute, axis: int, names: dict[str, Any], other: str) -> list[str]:
    """Return the source lines that convert v<axis> to a coordinate.

    other   the line for values of other types than those that are handled inline
    """
    v = f"v{axis}"
    quick: list[tuple[str, str]] = []
    names[f"lo{axis}"], names[f"hi{axis}"] = attribute.domain
    within = f"lo{axis} <= {v} <= hi{axis}"
    whole = f"type({v}) is int and {within} and {-_EXACT!r} <= {v} <= {_EXACT!r}", "pass"
    if type(attribute) is Number:
        quick = [(f"type({v}) is float and {within}", f"{v} += 0.0"), whole]  # -0.0 becomes 0.0
    elif type(attribute) is Integer:
        is_whole = f"type({v}) is float and {v}.is_integer()"
        quick = [whole, (whole[0].replace(f"type({v}) is int", is_whole), f"{v} += 0.0")]
    elif type(attribute) is Timestamp and attribute.epoch is not None:
        unit = EPOCH_UNITS[attribute.epoch]
        quick = [(whole[0].replace(f" {v} ", f" {v} * {unit} "), f"{v} *= {unit}")]
    elif type(attribute) is Boolean:
        quick = [(f"type({v}) is bool", "pass")]
    elif type(attribute) in (Category, Hierarchy):
        names[f"codes{axis}"] = attribute.codes  # type: ignore[attr-defined]
        quick = [(f"type({v}) is str and {v} in codes{axis}", f"{v} = codes{axis}[{v}]")]
    elif type(attribute) in (String, Text):
        names[f"codes{axis}"] = attribute.codes  # type: ignore[attr-defined]
        ascii_text = f"type({v}) is str and {v}.isascii()"
        quick = [(ascii_text, f"{v} = codes{axis}.get({v}, OTHER)")]
    elif type(attribute) is Patterns:
        quick = [(f"type({v}) is str and {v}.isascii()", f"{v} = put({v})")]
    elif type(attribute) is TextOrder:
        first = f"{v}[:{ORDER_BYTES}]"
        quick = [(f"type({v}) is str and {v}.isascii()", f"{v} = order_of({first}.encode())")]
    lines: list[str] = []
    for condition, line in [*quick, (f"{v} is None", f"{v}, is_partial = MISSING, True")]:
        lines += [f"{'elif' if lines else 'if'} {condition}:", f"    {line}"]
    return [*lines, "else:", f"    {other}"]
