"""Terms that a text must have for a word to hold, read from the programs of words.

A literal that isn't negated is a *requirement*: alternatives, of which one is needed, each with
terms that a text which fulfils it has, every one of them. Of all requirements of a word one is
enough to select it, and of all terms of an alternative one.

    has all ('red', 'bike')    one alternative: red, bike
    has any ('red', 'bike')    two: red; bike
    in ('A', 'B', ...)         one for each value
    like '%bike%'              one: the runs of four bytes in `bike`
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rangecast.kernels.arrays import I64, U64
from rangecast.kernels.bundle import opened, pointers
from rangecast.kernels.jit import jit
from rangecast.match.terms.hashes import (
    GRAMS,
    MAX_END,
    PREFIX,
    START,
    SUFFIX,
    WHOLE,
    WORD,
    longer,
    mixed,
    salt_of,
    source_of,
)
from rangecast.model.shapes.verification.programs import LITERAL, TEXT, Programs
from rangecast.model.text.forms import WORDS
from rangecast.model.text.programs import (
    AT_END,
    AT_START,
    ONE,
    SET,
    SIGNATURE,
    set_value,
)

_MAX_RUNS = 32
"""Runs of bytes that are considered in one part of a pattern."""
_SPACE = 32.0
_SIGNED = 52


class Requirements(NamedTuple):
    """Requirements of some words."""

    of_word: I64
    """(words + 1,) first requirement."""
    first: I64
    """(requirements + 1,) first alternative."""
    terms: I64
    """(alternatives + 1,) first term."""
    hashes: U64
    sources: I64
    """(terms,) hash and source of each term."""
    signatures: I64
    """(alternatives,) bits that the signature of a text has, of one of its numbers: which one is in
    the bits from 52 on."""


@jit
def _put(hashes: Any, sources: Any, at: int, value: Any, axis: int, form: int, kind: int) -> int:
    if at < len(hashes):
        hashes[at] = mixed(value, salt_of(axis, form, kind & 15))
        sources[at] = source_of(axis, form, kind & 15, kind >> 4)
    return at + 1


@jit
def _run_terms(
    n: Any, first: int, last: int, axis: int, form: int, hashes: Any, sources: Any, at: int
) -> int:
    """Write the terms of a run of bytes that may lie anywhere."""
    length = last - first
    size = min(length, GRAMS[-1])
    step = 1 + (length - size) // _MAX_RUNS
    for begin in range(first, last - size + 1, step):
        value = np.uint64(0)
        for i in range(begin, begin + size):
            value = (value << np.uint64(8)) | np.uint64(n[i])
        at = _put(hashes, sources, at, value, axis, form, size)
    return at


@jit
def _end_terms(
    n: Any, first: int, last: int, step: int, kind: int, axis: int, form: int, out: Any, at: int
) -> int:
    """Write the term of a run of bytes at an end of a text: from `first` on, before `last`."""
    run, length, i = START, 0, first
    while i != last and (length < MAX_END or kind == WHOLE):
        run = longer(run, n[i])
        length += 1
        i += step
    code = kind if kind == WHOLE else kind + 16 * length
    return _put(out[0], out[1], at, run, axis, form, code)


@jit
def _word_terms(n: Any, first: int, last: int, axis: int, out: Any, at: int) -> int:
    """Write the words of a phrase."""
    run = START
    for i in range(first, last):
        if n[i] != _SPACE:
            run = longer(run, n[i])
        elif run != START:
            at = _put(out[0], out[1], at, run, axis, WORDS, WORD)
            run = START
    return at


@jit
def _part_terms(
    n: Any, part: int, starts: bool, ends: bool, axis: int, form: int, out: Any, at: int
) -> int:
    """Write the terms of a part of a pattern, which may begin or end the text."""
    first, last = part + 2, part + 2 + int(n[part])
    if form == WORDS:
        return _word_terms(n, first, last, axis, out, at)
    begin = first
    while begin < last:
        end = begin
        while end < last and n[end] != ONE:
            end += 1
        if end > begin:
            is_prefix, is_suffix = starts and begin == first, ends and end == last
            if is_prefix and is_suffix:
                at = _end_terms(n, begin, end, 1, WHOLE, axis, form, out, at)
            elif is_prefix:
                at = _end_terms(n, begin, end, 1, PREFIX, axis, form, out, at)
            elif is_suffix:
                at = _end_terms(n, end - 1, begin - 1, -1, SUFFIX, axis, form, out, at)
            else:
                at = _run_terms(n, begin, end, axis, form, out[0], out[1], at)
        begin = end + 1
    return at


@jit
def _pattern_terms(n: Any, pattern: int, axis: int, form: int, out: Any, at: int) -> int:
    fixed, parts = int(n[pattern]), int(n[pattern + 1])
    part = pattern + 2 + SIGNATURE
    for number in range(parts):
        starts = number == 0 and fixed & AT_START != 0
        ends = number == parts - 1 and fixed & AT_END != 0
        at = _part_terms(n, part, starts, ends, axis, form, out, at)
        part += 2 + int(n[part]) * (2 if n[part + 1] == 0.0 else 1)
    if parts == 0 and fixed != 0:
        at = _put(out[0], out[1], at, START, axis, form, WHOLE)
    return at


@jit
def _set_terms(n: Any, first: int, value: int, axis: int, form: int, out: Any, at: int) -> int:
    begin, end = set_value(n, first, value)
    run = START
    for i in range(begin, end):
        chunk, scale = n[i], 257.0**5
        for _ in range(6):
            digit = np.floor(chunk / scale)
            chunk -= digit * scale
            scale /= 257.0
            if digit > 0.0:
                run = longer(run, digit - 1.0)
    return _put(out[0], out[1], at, run, axis, form, WHOLE)


@jit
def _sign(n: Any, pattern: int, bits: I64) -> None:
    for i in range(SIGNATURE):
        bits[i] |= int(n[pattern + 2 + i])


@jit
def _best_bits(bits: I64) -> int:
    """Return the number of a signature with the most bits, and which one it is; forget them."""
    best, most = 0, -1
    for i in range(SIGNATURE):
        count, rest = 0, bits[i]
        while rest:
            rest &= rest - 1
            count += 1
        if count > most:
            best, most = i << _SIGNED | bits[i], count
        bits[i] = 0
    return best


@jit
def _collect(
    table: I64,
    words: I64,
    of_word: I64,
    first: I64,
    terms: I64,
    signatures: I64,
    hashes: U64,
    sources: I64,
) -> tuple[int, int, int]:
    """Write the requirements of words; arrays that are too short are counted only."""
    p = pointers(opened(table, Programs))
    n = p.numbers
    out = hashes, sources
    bits = np.zeros(SIGNATURE, np.int64)
    requirement = alternative = at = 0
    for number in range(len(words)):
        of_word[number] = requirement
        word = words[number]
        for literal in range(p.words[word], p.words[word + 1]):
            own = LITERAL * literal
            kind, axis, form = (
                p.literals[own] - TEXT,
                p.literals[own + 5] >> 16,
                p.literals[own + 2],
            )
            if kind < 0 or p.literals[own + 1] != 0:
                continue
            begin = p.literals[own + 3]
            was = alternative, at
            every = kind != SET and n[begin + 1] == 1.0
            pattern = begin + 3
            selects = True
            for i in range(int(n[begin])):
                before = at
                if kind == SET:
                    at = _set_terms(n, begin, i, axis, form, out, at)
                else:
                    at = _pattern_terms(n, pattern, axis, form, out, at)
                    _sign(n, pattern, bits)
                    pattern += int(n[pattern - 1]) + 1
                if not every:
                    selects = selects and at > before
                    if alternative < len(signatures):
                        terms[alternative] = before
                        signatures[alternative] = _best_bits(bits)
                    alternative += 1
            if every:
                selects = at > was[1]
                if alternative < len(signatures):
                    terms[alternative] = was[1]
                    signatures[alternative] = _best_bits(bits)
                alternative += 1
            bits[:] = 0
            if selects:
                if requirement < len(first):
                    first[requirement] = was[0]
                requirement += 1
            else:
                alternative, at = was
    of_word[len(words)] = requirement
    return requirement, alternative, at


def requirements_of(programs: I64, words: I64) -> Requirements:
    """Return the requirements of words, given by their numbers in the programs of a space."""
    none = np.empty(0, np.int64)
    of_word = np.empty(len(words) + 1, np.int64)
    sizes = _collect(programs, words, of_word, none, none, none, np.empty(0, np.uint64), none)
    first, terms = np.empty(sizes[0] + 1, np.int64), np.empty(sizes[1] + 1, np.int64)
    signatures = np.empty(sizes[1], np.int64)
    hashes, sources = np.empty(sizes[2], np.uint64), np.empty(sizes[2], np.int64)
    _collect(programs, words, of_word, first, terms, signatures, hashes, sources)
    first[-1], terms[-1] = sizes[1], sizes[2]
    return Requirements(of_word, first, terms, hashes, sources, signatures)
