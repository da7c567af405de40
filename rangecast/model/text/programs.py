"""Programs for text conditions, and the kernel that runs them.

A text has several *forms* (`rangecast.model.text.forms`). A program is a sequence of numbers:

    MATCH   number of patterns, whether all must match (1) or any (0), then each pattern: its
            length, whether it is anchored at the start (1) and at the end (2), its number of
            parts, its signature, then each part
    part    number of units, whether any of them is ONE, the units; then, if none is, for each unit
            the length of the longest border of the part up to it
    SET     number of texts, number of slots, a text or -1 for each slot, the start of each text
            and the end of the last, then the texts, six bytes per number; a text is in the slot of
            its hash or in one of the next

A unit is a byte, or ONE, which stands for any character. The parts of a pattern are searched from
left to right, each as early as possible. Parts without ONE are found by the Knuth-Morris-Pratt
algorithm, so the time is linear in the text for any pattern.

Most texts are ruled out by their signature: each pair of adjacent bytes sets one of 208 bits, and a
text that matches a pattern has all bits of the pattern.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from rangecast.kernels.arrays import F64, I64, U8
from rangecast.kernels.bundle import bytes_at, integers_at
from rangecast.kernels.jit import jit

MATCH, SET = 0, 1
ONE = 256.0
AT_START, AT_END = 1, 2
SIGNATURE, SIGNATURE_BITS = 4, 52
"""Numbers of a signature, and bits of each that a double carries."""
RECORD = 2 + SIGNATURE
"""Integers about one form of a text: its address, its length, its signature."""
_CHUNK, _BASE = 6, 257.0
"""Bytes in a number of a set; a byte, or the end of a text."""
_MIX = np.uint64(0x9E3779B97F4A7C15)

Part = list[float]


def match_program(patterns: Sequence[tuple[int, list[Part]]], *, every: bool) -> F64:
    """Compile patterns, given by their anchors and parts, to a program."""
    made: list[float] = [len(patterns), every]
    for fixed, parts in patterns:
        body: list[float] = [fixed, len(parts), *_signature_of(parts)]
        for part in parts:
            has_one = ONE in part
            body += [len(part), has_one, *part, *([] if has_one else _borders(part))]
        made += [len(body), *body]
    return np.array(made, np.float64)


def _signature_of(parts: list[Part]) -> list[float]:
    """Return the signature bits of every text that contains the parts."""
    words = [0] * SIGNATURE
    for part in parts:
        for first, second in pairwise(part):
            if ONE not in (first, second):
                bit = _bit(int(first), int(second))
                words[bit // SIGNATURE_BITS] |= 1 << bit % SIGNATURE_BITS
    return [float(word) for word in words]


def _bit(first: Any, second: Any) -> int:
    """Return the signature bit of two adjacent bytes."""
    return int((first * 31 + second * 167) % (SIGNATURE * SIGNATURE_BITS))


bit_of = jit(_bit)


def _borders(part: Part) -> list[float]:
    """Return for each unit the length of the longest border of the part up to it (KMP)."""
    borders = [0] * len(part)
    length = 0
    for at in range(1, len(part)):
        while length and part[at] != part[length]:
            length = borders[length - 1]
        length += part[at] == part[length]
        borders[at] = length
    return [float(border) for border in borders]


def set_program(texts: Sequence[bytes]) -> F64:
    """Compile a set of texts to a program."""
    each = [_chunks(text) for text in sorted(set(texts))]
    starts = np.cumsum([0, *(len(chunks_of) for chunks_of in each)])
    slots = 1 << (2 * len(each) - 1).bit_length()
    chunks = [chunk for chunks_of in each for chunk in chunks_of]
    made = np.array([len(each), slots, *[-1.0] * slots, *starts, *chunks], np.float64)
    _fill_slots(made)
    return made


@jit
def set_value(n: Any, first: int, value: int) -> tuple[int, int]:
    """Return the start and end of a text in the set program at n[first]."""
    starts = first + 2 + int(n[first + 1])
    body = starts + int(n[first]) + 1
    return body + int(n[starts + value]), body + int(n[starts + value + 1])


@jit
def _hashed(before: Any, chunk: float) -> Any:
    mixed = (before ^ np.uint64(chunk)) * _MIX
    return mixed ^ (mixed >> np.uint64(32))


@jit
def _fill_slots(n: F64) -> None:
    count, slots = int(n[0]), int(n[1])
    for value in range(count):
        begin, end = set_value(n, 0, value)
        hashed = _MIX
        for at in range(begin, end):
            hashed = _hashed(hashed, n[at])
        slot = np.int64(hashed & np.uint64(slots - 1))
        while n[2 + slot] >= 0.0:
            slot = (slot + 1) & (slots - 1)
        n[2 + slot] = value


def _chunks(text: bytes) -> list[float]:
    """Pack a text into numbers of six bytes each; the last number marks its end."""
    return [
        float(int(_chunk_of_bytes(text[at : at + _CHUNK])))
        for at in range(0, len(text) + 1, _CHUNK)
    ]


def _chunk_of_bytes(gram: bytes) -> int:
    chunk = 0
    for at in range(_CHUNK):
        chunk = chunk * 257 + (gram[at] + 1 if at < len(gram) else 0)
    return chunk


@jit
def _is_inner(byte: int) -> bool:
    """Return whether a byte is a UTF-8 continuation byte."""
    return (byte & 0xC0) == 0x80


@jit
def _matched(n: Any, part: int, text: Any, at: int, size: int) -> int:
    """Match a part at an offset of a text; return its end, or -1."""
    for unit in range(int(n[part])):
        if at == size:
            return -1
        wanted = n[part + 2 + unit]
        if wanted == ONE:
            at += 1
            while at < size and _is_inner(text[at]):
                at += 1
        elif wanted == float(text[at]):
            at += 1
        else:
            return -1
    return at


@jit
def _matched_to(n: Any, part: int, text: Any, size: int) -> int:
    """Match a part at the end of a text; return its start, or -1."""
    at = size
    for unit in range(int(n[part]) - 1, -1, -1):
        if at == 0:
            return -1
        wanted = n[part + 2 + unit]
        at -= 1
        if wanted == ONE:
            while at > 0 and _is_inner(text[at]):
                at -= 1
        elif wanted != float(text[at]):
            return -1
    return at


@jit
def _find_part(n: Any, part: int, text: Any, at: int, size: int) -> int:
    """Find the first occurrence of a part from an offset on; return its end, or -1."""
    count, units = int(n[part]), part + 2
    if n[part + 1] == 0.0:
        borders = units + count
        length, begin = 0, np.uint8(n[units])
        while at < size:
            if length == 0:  # most of the time
                while at < size and text[at] != begin:
                    at += 1
                if at == size:
                    return -1
            byte = float(text[at])
            while length > 0 and n[units + length] != byte:
                length = int(n[borders + length - 1])
            if n[units + length] == byte:
                length += 1
                if length == count:
                    return at + 1
            at += 1
        return -1
    while at <= size:
        if at == size or not _is_inner(text[at]):
            end = _matched(n, part, text, at, size)
            if end >= 0:
                return end
        at += 1
    return -1


@jit
def _pattern_holds(n: Any, pattern: int, text: Any, size: int, forms: Any, own: int) -> bool:
    for i in range(SIGNATURE):
        if int(n[pattern + 2 + i]) & ~forms[own + 2 + i]:
            return False
    fixed, parts = int(n[pattern]), int(n[pattern + 1])
    at, part = 0, pattern + 2 + SIGNATURE
    if parts == 0:
        return bool(fixed == 0 or size == 0)
    for number in range(parts):
        is_last = number == parts - 1 and fixed & AT_END
        if number == 0 and fixed & AT_START:
            at = _matched(n, part, text, 0, size)
            if at < 0 or (is_last and at != size):
                return False
        elif is_last:
            begin = _matched_to(n, part, text, size)
            if begin < at:
                return False
        else:
            at = _find_part(n, part, text, at, size)
            if at < 0:
                return False
        part += 2 + int(n[part]) * (2 if n[part + 1] == 0.0 else 1)
    return True


@jit
def _match_holds(n: Any, first: int, text: Any, size: int, forms: Any, own: int) -> bool:
    every = n[first + 1] == 1.0
    pattern = first + 3
    for _ in range(int(n[first])):
        if _pattern_holds(n, pattern, text, size, forms, own) != every:
            return not every
        pattern += int(n[pattern - 1]) + 1
    return bool(every)


@jit
def _chunk(text: Any, at: int, size: int) -> float:
    chunk = 0.0
    for i in range(_CHUNK):
        chunk = chunk * _BASE + (float(text[at + i]) + 1.0 if at + i < size else 0.0)
    return chunk


@jit
def _set_holds(n: Any, first: int, text: Any, size: int) -> bool:
    slots = int(n[first + 1])
    hashed = _MIX
    for at in range(0, size + 1, _CHUNK):
        hashed = _hashed(hashed, _chunk(text, at, size))
    slot = np.int64(hashed & np.uint64(slots - 1))
    while n[first + 2 + slot] >= 0.0:
        begin, end = set_value(n, first, int(n[first + 2 + slot]))
        at = 0
        while begin < end and n[begin] == _chunk(text, at, size):
            begin += 1
            at += _CHUNK
        if begin == end:
            return True
        slot = (slot + 1) & (slots - 1)
    return False


@jit
def text_holds(n: Any, first: int, kind: int, form: int, handle: float) -> int:
    """Return whether a program matches a text, 1 or 0; -1 if the event has no such text.

    The program starts at n[first]; `handle` is the address of one record per form of the event's
    text: its address, its length and its signature.
    """
    if not math.isfinite(handle):
        return -1
    forms = integers_at(np.int64(handle))
    own = RECORD * form
    if forms[own] == 0:
        return -1
    text, size = bytes_at(forms[own]), forms[own + 1]
    if kind == SET:
        return int(_set_holds(n, first, text, size))
    return int(_match_holds(n, first, text, size, forms, own))


@jit
def lacking(n: Any, first: int, kind: int, form: int, handle: float) -> int:
    """Return how many patterns of a program that asks for all of them a text fails.

    Of any other program that fails, 1.
    """
    if text_holds(n, first, kind, form, handle) != 0:
        return 0
    if kind == SET or n[first + 1] == 0.0:
        return 1
    forms = integers_at(np.int64(handle))
    own = RECORD * form
    text, size = bytes_at(forms[own]), forms[own + 1]
    failed, pattern = 0, first + 3
    for _ in range(int(n[first])):
        failed += not _pattern_holds(n, pattern, text, size, forms, own)
        pattern += int(n[pattern - 1]) + 1
    return failed


@jit
def sign(data: U8, starts: I64, sizes: I64, records: I64, form: int) -> None:
    """Write the signatures of texts, given their start in `data` and their length."""
    own = RECORD * form + 2
    for text in range(len(starts)):
        for at in range(starts[text], starts[text] + sizes[text] - 1):
            bit = bit_of(np.int64(data[at]), np.int64(data[at + 1]))
            records[text, own + bit // SIGNATURE_BITS] |= np.int64(1) << (bit % SIGNATURE_BITS)
