"""Bodies of requests: bounded, inflated, and cut into events."""

from __future__ import annotations

import zlib
from typing import Any

import msgspec
import pyarrow as pa
from fastapi import Request

from rangecast.errors import shown
from rangecast.server.encoding import CLOUDEVENTS
from rangecast.server.http.edge import MOST_BYTES
from rangecast.server.registry import RefusedError

MOST_EVENTS = 10_000
_raws = msgspec.json.Decoder(list[msgspec.Raw])
_encode = msgspec.json.Encoder().encode


async def read_body(request: Request, most: int = MOST_BYTES) -> bytes:
    """Return the body of a request, inflated; refuse one that is too large before it is read."""
    inflate = None
    coding = request.headers.get("content-encoding", "identity").lower()
    if coding == "gzip":
        inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
    elif coding != "identity":
        raise RefusedError(415, f"Content-Encoding {shown(coding)}: send gzip, or plain bytes")
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        try:
            plain = part if inflate is None else inflate.decompress(part, most - size + 1)
        except zlib.error as error:
            raise RefusedError(400, f"the body isn't gzip: {error}") from None
        size += len(plain)
        parts.append(plain)
        if size > most:
            raise RefusedError(
                413, f"a body has at most {most:,} bytes, inflated\n  to do: send several requests"
            )
    if inflate is not None and not inflate.eof:
        raise RefusedError(400, "the body isn't gzip: it ends too early")
    return b"".join(parts)


def lines_in(body: bytes) -> list[bytes]:
    """Return the lines that aren't empty."""
    return [line for line in body.split(b"\n") if line.strip()]


def rows_of_body(body: bytes) -> Any:
    """Return the JSON of a body: one value, or a list of those of its lines."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as whole:
        lines = lines_in(body)
        if len(lines) < 2:
            raise RefusedError(400, f"the body isn't JSON: {whole}") from None
        rows = []
        for place, line in enumerate(lines):
            try:
                rows.append(msgspec.json.decode(line))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise RefusedError(
                    400, f"line {place + 1} of the body isn't JSON: {error}"
                ) from None
        return rows


def lines_of(request: Request, body: bytes) -> tuple[list[bytes], str]:
    """Return the events of a body, each a JSON text, and their form."""
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind in ("application/json", "text/json") and "ce-specversion" in request.headers:
        return [_from_headers(request, body)], CLOUDEVENTS
    if kind == "application/cloudevents+json":
        return _checked([body]), CLOUDEVENTS
    if kind == "application/cloudevents-batch+json":
        return _checked(_listed(body)), CLOUDEVENTS
    if kind == "application/vnd.apache.arrow.stream":
        return _checked(_from_arrow(body)), ""
    if kind in ("application/x-ndjson", "application/jsonl", "application/x-jsonlines"):
        return _checked(lines_in(body)), ""
    if kind in ("application/json", "text/json", "application/x-www-form-urlencoded", ""):
        # curl -d says that it sends a form; what is meant is JSON
        if body.lstrip()[:1] == b"[":
            return _checked(_listed(body)), ""
        lines = lines_in(body)
        return _checked(lines if len(lines) > 1 and _is_whole(lines[0]) else [body]), ""
    raise RefusedError(
        415,
        f"events of the type {shown(kind)} can't be read\n"
        "  to do: send application/json, application/x-ndjson, CloudEvents or an Arrow stream",
    )


def _is_whole(line: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(line), dict)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


def _listed(body: bytes) -> list[bytes]:
    try:
        return [bytes(one) for one in _raws.decode(body)]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RefusedError(400, f"the body isn't a JSON list: {error}") from None


def _from_headers(request: Request, body: bytes) -> bytes:
    """Return a CloudEvent whose envelope is in the headers."""
    envelope = {
        name[3:]: value for name, value in request.headers.items() if name.startswith("ce-")
    }
    return _encode(envelope)[:-1] + b',"data":' + body + b"}"


def _from_arrow(body: bytes) -> list[bytes]:
    try:
        with pa.ipc.open_stream(body) as stream:
            table = stream.read_all()
        table.validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowException, OSError) as error:
        raise RefusedError(400, f"the body isn't an Arrow stream: {error}") from None
    if table.num_rows > MOST_EVENTS:
        _checked([b""] * table.num_rows)
    rows = table.to_pylist()
    return [_encode({k: v for k, v in row.items() if v is not None}) for row in rows]


def _checked(lines: list[bytes]) -> list[bytes]:
    if len(lines) > MOST_EVENTS:
        raise RefusedError(
            413,
            f"a request has at most {MOST_EVENTS:,} events; given: {len(lines):,}\n"
            "  to do: send several requests",
        )
    return lines
