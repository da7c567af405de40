"""Decode untrusted JSON, with a limit on its nesting.

Decoders recurse, and the depth that they can handle depends on the thread's stack. One thread must
be able to read what another accepted, so the limit is fixed, and far below what any thread can
handle.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

MAX_DEPTH = 64
"""Arrays and objects inside one another, the outermost included."""
_TOO_DEEP = "JSON is nested deeper than {} levels"
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{\]}]', re.DOTALL)
_NO_BRACKETS = bytes(code for code in range(256) if code not in b"[]{}")
_SHORT = 2 * MAX_DEPTH
"""Bytes that `MAX_DEPTH` levels take at least, so that shorter texts need no look."""
_FEW = 8
_TOGETHER = MAX_DEPTH // 2
"""Number of texts checked together: with at most two brackets each, none is too deep."""
_anything: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


class DepthError(msgspec.DecodeError):
    """JSON is nested too deep."""


def decode(
    text: bytes, decoder: msgspec.json.Decoder[Any] = _anything, *, max_depth: int = MAX_DEPTH
) -> Any:
    """Decode a JSON text.

    Raise `DepthError` if it is nested too deep, and another `msgspec.DecodeError` or a
    `UnicodeDecodeError` if it isn't JSON.
    """
    if len(text) > _SHORT:
        check_depth(text, max_depth)
    try:
        return decoder.decode(text)
    except RecursionError:  # the caller's own stack is deep
        raise DepthError(_TOO_DEEP.format(max_depth)) from None


def check_depth(text: bytes, max_depth: int = MAX_DEPTH) -> None:
    """Raise `DepthError` if a JSON text is nested deeper than `max_depth`."""
    # Most texts have too few brackets, which is quickly seen.
    if text.count(b"{") + text.count(b"[") > max_depth and _depth(text) > max_depth:
        raise DepthError(_TOO_DEEP.format(max_depth))


def decoder_for(texts: Sequence[bytes]) -> Callable[[bytes], Any]:
    """Return a decoder for these texts: `decode`, or the unchecked one if none of them is deep.

    Checking all texts together is much faster than checking each.
    """
    if len(texts) < _FEW:
        return decode
    if max(map(len, texts)) > _SHORT:
        for begin in range(0, len(texts), _TOGETHER):
            joined = b"".join(texts[begin : begin + _TOGETHER])
            if joined.count(b"{") + joined.count(b"[") > MAX_DEPTH:
                return decode
    return _anything.decode


def _depth(text: bytes) -> int:
    """Return the nesting depth of a text; for invalid JSON, that of its brackets."""
    brackets = np.frombuffer(_STRING.sub(b"", text).translate(None, _NO_BRACKETS), np.uint8)
    if not len(brackets):
        return 0
    # bit 2 tells 0x5b and 0x7b, which open, from 0x5d and 0x7d
    steps = np.where(brackets & 4, np.int32(-1), np.int32(1))
    return int(np.cumsum(steps, dtype=np.int32).max())


def shallow(text: bytes) -> bytes:
    """Return a JSON text with null in place of everything nested deeper than `MAX_DEPTH`.

    Logs written by earlier versions may have events that are too deep to decode.
    """
    parts: list[bytes] = []
    depth = kept = 0
    for token in _TOKEN.finditer(text):
        if token[0] in (b"[", b"{"):
            depth += 1
            if depth == MAX_DEPTH + 1:
                parts += [text[kept : token.start()], b"null"]
        elif token[0] in (b"]", b"}"):
            depth -= 1
            if depth == MAX_DEPTH:
                kept = token.end()
    parts.append(text[kept:])
    return b"".join(parts)


def within_depth(text: bytes) -> bytes:
    """Return a JSON text unchanged, or the result of `shallow` if it is nested too deep."""
    try:
        check_depth(text)
    except DepthError:
        return shallow(text)
    return text
