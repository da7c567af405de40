"""Read request bodies: bounded, decompressed, and split into events."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from fastapi import Request
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect

from rangecast.errors import abbreviate
from rangecast.server.encoding import CLOUDEVENTS
from rangecast.server.http.bodies.arrow import lines_of_arrow
from rangecast.server.http.middleware import MAX_BODY_BYTES
from rangecast.server.json_text import MAX_DEPTH, DepthError, decode
from rangecast.server.state.registry import RequestError

T = TypeVar("T")
MAX_EVENTS = 10_000
INLINE_BYTES = 16 << 10
"""Bytes that are read on the event loop: another thread would take longer to begin."""
_PIECE = 64 << 10
_MAX_MEMBERS = 1_000
"""Members of a gzip file: each costs more than its bytes."""
_raws = msgspec.json.Decoder(list[msgspec.Raw])
_encode = msgspec.json.Encoder().encode


async def read_body(request: Request, max_bytes: int = MAX_BODY_BYTES) -> bytes:
    """Return the decompressed body of a request; reject one that is too large before reading it."""
    coding = request.headers.get("content-encoding", "identity").lower()
    if coding not in ("gzip", "identity"):
        raise RequestError(
            415, f"Content-Encoding {abbreviate(coding)} isn't supported: send gzip, or none"
        )
    parts: list[bytes] = []
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            parts.append(part)
            if size > max_bytes:
                raise _too_large(max_bytes)
    except ClientDisconnect:
        raise RequestError(400, "the connection was closed within the body") from None
    body = b"".join(parts)
    return await asyncio.to_thread(_inflated, body, max_bytes) if coding == "gzip" else body


def _too_large(max_bytes: int) -> RequestError:
    return RequestError(
        413,
        f"a body may have at most {max_bytes:,} bytes, uncompressed\n  hint: send several requests",
    )


def _inflated(body: bytes, max_bytes: int) -> bytes:
    """Return the decompressed members of a gzip file, concatenated."""
    parts: list[bytes] = []
    size = members = 0
    inflate = None
    for begin in range(0, len(body), _PIECE):
        rest = body[begin : begin + _PIECE]
        while rest:
            if inflate is None:
                members += 1
                if members > _MAX_MEMBERS:
                    raise RequestError(400, f"gzip with more than {_MAX_MEMBERS:,} members")
                inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
            try:
                plain = inflate.decompress(rest, max_bytes - size + 1)
            except zlib.error as error:
                where = "the data after its end isn't" if members > 1 else "the body isn't"
                raise RequestError(400, f"{where} gzip: {error}") from None
            size += len(plain)
            if size > max_bytes:
                raise _too_large(max_bytes)
            parts.append(plain)
            rest = inflate.unused_data
            if inflate.eof:
                inflate = None
    if inflate is not None or not members:
        raise RequestError(400, "the body isn't gzip: it is truncated")
    return b"".join(parts)


async def off_loop(size: int, work: Callable[..., T], *arguments: Any) -> T:
    """Call a function that processes `size` bytes; use another thread unless they are few."""
    return work(*arguments) if size <= INLINE_BYTES else await asyncio.to_thread(work, *arguments)


def weight(headers: Headers, body: bytes) -> int:
    """Return the size of a body for `off_loop`; an Arrow stream counts more, as it expands."""
    return MAX_BODY_BYTES if "arrow" in headers.get("content-type", "") else len(body)


def lines_in(body: bytes) -> list[bytes]:
    """Return the non-empty lines of a body."""
    return [line for line in body.split(b"\n") if line.strip()]


def rows_of_body(body: bytes) -> Any:
    """Return the JSON value of a body, or a list with one value per line."""
    try:
        return decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as whole:
        lines = lines_in(body)
        if len(lines) < 2 or isinstance(whole, DepthError):
            raise RequestError(400, f"the body isn't JSON: {whole}") from None
        rows = []
        for index, line in enumerate(lines):
            try:
                rows.append(decode(line))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise RequestError(
                    400, f"line {index + 1} of the body isn't JSON: {error}"
                ) from None
        return rows


def lines_of(headers: Headers, body: bytes) -> tuple[list[bytes], str]:
    """Return the events of a body, each a JSON text, and their form."""
    kind = headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind in ("application/json", "text/json") and "ce-specversion" in headers:
        return [_from_headers(headers, body)], CLOUDEVENTS
    if kind == "application/cloudevents+json":
        return _checked([body]), CLOUDEVENTS
    if kind == "application/cloudevents-batch+json":
        return _checked(_listed(body)), CLOUDEVENTS
    if kind == "application/vnd.apache.arrow.stream":
        return lines_of_arrow(body, MAX_EVENTS, MAX_BODY_BYTES), ""
    if kind in ("application/x-ndjson", "application/jsonl", "application/x-jsonlines"):
        return _checked(lines_in(body)), ""
    if kind in ("application/json", "text/json", "application/x-www-form-urlencoded", ""):
        # curl -d says that it sends a form, but sends JSON
        if body.lstrip()[:1] == b"[":
            return _checked(_listed(body)), ""
        lines = lines_in(body)
        return _checked(lines if len(lines) > 1 and _is_whole(lines[0]) else [body]), ""
    raise RequestError(
        415,
        f"events of type {abbreviate(kind)} can't be read\n"
        "  hint: send application/json, application/x-ndjson, CloudEvents or an Arrow stream",
    )


def _is_whole(line: bytes) -> bool:
    try:
        return isinstance(decode(line), dict)
    except DepthError:  # this event is rejected, not all of them
        return True
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


def _listed(body: bytes) -> list[bytes]:
    try:
        raws = decode(body, _raws, max_depth=MAX_DEPTH + 1)  # the list around them counts
        return [bytes(raw) for raw in raws]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestError(400, f"the body isn't a JSON list: {error}") from None


def _from_headers(headers: Headers, body: bytes) -> bytes:
    """Return a CloudEvent whose attributes are in the headers."""
    envelope = {name[3:]: value for name, value in headers.items() if name.startswith("ce-")}
    return _encode(envelope)[:-1] + b',"data":' + body + b"}"


def _checked(lines: list[bytes]) -> list[bytes]:
    if len(lines) > MAX_EVENTS:
        raise RequestError(
            413,
            f"a request may have at most {MAX_EVENTS:,} events; given: {len(lines):,}\n"
            "  hint: send several requests",
        )
    return lines
