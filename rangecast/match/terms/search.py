"""Postings of anchors, and the kernel that finds candidates by the terms of texts.

    sources    (axis, form) that are read, and which kinds of terms
    filter     bits of the hashes that are anchors: most terms of a text end here
    keys       a term lies in the slot that its hash says or in one of the next; the postings of the
               one in slot s are first[s] to before last[s]
    postings   word, signature
    boxes      of each word, those of its rows: bounds on the axes that they mention

Cost: the bytes of the texts, the postings of the anchors that occur, and the rows of words that
hold. Work: words whose program ran, boxes compared.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, U8, U32, U64
from rangecast.kernels.bundle import (
    bytes_at,
    integers_at,
    opened,
    pointer,
    pointers,
    table_size,
)
from rangecast.kernels.jit import jit, jit_single
from rangecast.match.single_event import OWN, append_other_rows, max_beside, reject_nan
from rangecast.match.terms.anchors import counter
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
)
from rangecast.model.shapes.verification.programs import Programs, holds
from rangecast.model.text.programs import RECORD

KINDS = 16
PREFIXES, SUFFIXES = KINDS, KINDS + MAX_END + 1
SOURCE = SUFFIXES + MAX_END + 1
"""Flags of a source: kinds of terms, lengths of prefixes, lengths of suffixes."""
_PER_BYTE = len(GRAMS) + 4
"""Terms of a text per byte, at most."""
_FEW = 24
"""Numbers that are sorted by insertion."""
_SIGNED = 52
_MASK = (1 << _SIGNED) - 1
SEVERAL = 1 << 30
"""Added to a word of a posting that may be found by several terms."""


SEVERAL_BOXES, ONE, DEAD = 0, 1, 2


class Postings(NamedTuple):
    """Postings of anchors, and the boxes of words."""

    source_of: Annotated[I64, 2]
    """(sources, 2): axis, form."""
    flags: Annotated[U8, 2]
    """(sources, SOURCE)."""
    filter_shift: int
    slot_shift: int
    """Low bits of a hash that say nothing of its bit in the filter, and of its slot."""
    filter: U64
    keys: U64
    first: I64
    last: I64
    source: I64
    """Of the term in each slot."""
    words: I32
    signatures: I64
    programs: I64
    """The program of each word."""
    first_box: I64
    row: I32
    """Of each box."""
    state: U8
    """Of each box: `ONE` if its row has no other one, `SEVERAL_BOXES`, or `DEAD`."""
    first_bound: I64
    axis: I32
    lo: F64
    hi: F64


@jit
def _slot(at: Any, term: Any) -> Any:
    """Return the slot of a term, -1 if it is no anchor."""
    bit = np.int64(term >> np.uint64(at.filter_shift))
    if at.filter[bit >> 6] >> np.uint64(bit & 63) & np.uint64(1) == 0:
        return -1
    slot = np.int64(term >> np.uint64(at.slot_shift))
    while at.first[slot] < at.last[slot]:
        if at.keys[slot] == term:
            return slot
        slot += 1
    return -1


@jit
def _grown(buffer: Any, filled: int) -> Any:
    if filled < len(buffer):
        return buffer
    larger = np.empty(2 * len(buffer), buffer.dtype)
    larger[:filled] = buffer
    return larger


@jit
def _probe(at: Any, term: Any, hits: Any, filled: int, counts: Any) -> int:
    """Append the slot of a term if it is an anchor, and count the term if there are counters."""
    if len(counts) > 0:
        counts[counter(term)] += np.uint32(1)
    slot = _slot(at, term)
    if slot >= 0:
        hits[filled] = slot
        filled += 1
    return filled


@jit
def _scan_source(
    at: Any,
    flags: Any,
    axis: int,
    form: int,
    text: Any,
    size: int,
    hits: Any,
    filled: int,
    counts: Any,
) -> int:
    """Append the slots of the terms of a text that are anchors; there is room for all of them."""
    for kind in GRAMS:
        if flags[kind]:
            salt = salt_of(axis, form, kind)
            window = np.uint64(0)
            mask = (np.uint64(1) << np.uint64(8 * kind)) - np.uint64(1)
            for i in range(size):
                window = (window << np.uint64(8)) | np.uint64(text[i])
                if i + 1 >= kind:
                    term = mixed(window & mask, salt)
                    filled = _probe(at, term, hits, filled, counts)
    if flags[WORD]:
        salt = salt_of(axis, form, WORD)
        run = START
        for i in range(1, size):
            if text[i] != 32:
                run = longer(run, text[i])
            elif run != START:
                filled = _probe(at, mixed(run, salt), hits, filled, counts)
                run = START
    if flags[PREFIX] or flags[WHOLE]:
        salt = salt_of(axis, form, PREFIX)
        run = START
        for i in range(size):
            if not flags[WHOLE] and i == MAX_END:
                break
            run = longer(run, text[i])
            if i < MAX_END and flags[PREFIXES + i + 1]:
                filled = _probe(at, mixed(run, salt), hits, filled, counts)
        if flags[WHOLE]:
            term = mixed(run, salt_of(axis, form, WHOLE))
            filled = _probe(at, term, hits, filled, counts)
    if flags[SUFFIX]:
        salt = salt_of(axis, form, SUFFIX)
        run = START
        for i in range(min(size, MAX_END)):
            run = longer(run, text[size - 1 - i])
            if flags[SUFFIXES + i + 1]:
                filled = _probe(at, mixed(run, salt), hits, filled, counts)
    return filled


@jit
def _distinct(numbers: Any, first: int, filled: int) -> int:
    """Sort some numbers, keep each once, and return where they end now."""
    if filled - first < 2:
        return filled
    if filled - first > _FEW:
        numbers[first:filled] = np.sort(numbers[first:filled])
    else:
        for i in range(first + 1, filled):
            own, j = numbers[i], i
            while j > first and numbers[j - 1] > own:
                numbers[j] = numbers[j - 1]
                j -= 1
            numbers[j] = own
    kept = first + 1
    for i in range(first + 1, filled):
        if numbers[i] != numbers[kept - 1]:
            numbers[kept] = numbers[i]
            kept += 1
    return kept


@jit
def _list_words(at: Any, records: I64, hits: I64, filled: int, words: I64) -> tuple[I64, int]:
    """Return the words whose anchors occur, and whose signatures the text of the anchor has."""
    found, is_repeated = 0, False
    for h in range(filled):
        slot = hits[h]
        signature = integers_at(records[at.source[slot]])
        for posting in range(at.first[slot], at.last[slot]):
            needed = at.signatures[posting]
            if needed & _MASK & ~signature[needed >> _SIGNED] == 0:
                words = _grown(words, found)
                word = np.int64(at.words[posting])
                if word >= SEVERAL:
                    is_repeated = True
                words[found] = word & (SEVERAL - 1)
                found += 1
    return words, _distinct(words, 0, found) if is_repeated else found


@jit
def _in_box(at: Any, box: int, points: Any, event: int) -> bool:
    for bound in range(at.first_bound[box], at.first_bound[box + 1]):
        if not at.lo[bound] <= points[event + at.axis[bound]] <= at.hi[bound]:
            return False
    return True


@jit
def search(
    table: I64, programs_table: I64, points: F64, counts: U32, learned: int, offsets: I64
) -> tuple[I32, int, int]:
    """Return the candidates of events, which `offsets` gets the ends of, and the work done.

    points    (events, d), as kernels read texts in them
    learned   number of events, the first ones, whose terms are counted
    """
    postings = opened(table, Postings)
    at = pointers(postings)
    p = pointers(opened(programs_table, Programs))
    here, d = pointer(points, 0), points.shape[1]
    records = np.zeros(len(postings.source_of), np.int64)
    hits, words = np.empty(64, np.int64), np.empty(64, np.int64)
    rows = np.empty(max(64, 2 * len(points)), np.int32)
    filled = verified = compared = 0
    offsets[0] = 0
    for event in range(len(points)):
        count = 0
        for source in range(len(records)):
            axis, form = postings.source_of[source, 0], postings.source_of[source, 1]
            place = points[event, axis]
            if not np.isfinite(place):
                continue
            forms = np.int64(place)
            own = integers_at(forms)[RECORD * form]
            if own == 0:
                continue
            size = integers_at(forms)[RECORD * form + 1]
            records[source] = forms + 8 * (RECORD * form + 2)
            flags = pointer(postings.flags, source * SOURCE)
            given = at, flags, axis, form, bytes_at(own), size
            if count + _PER_BYTE * (size + 1) > len(hits):
                larger = np.empty(2 * (count + _PER_BYTE * (size + 1)), np.int64)
                larger[:count] = hits[:count]
                hits = larger
            counted = counts if event < learned else counts[:0]
            count = _scan_source(*given, pointer(hits, 0), count, counted)
        words, found = _list_words(at, records, hits, _distinct(hits, 0, count), words)
        begun, is_one = filled, 1
        for w in range(found):
            word = words[w]
            verified += 1
            if not holds(p, at.programs[word], here, event * d):
                continue
            for box in range(at.first_box[word], at.first_box[word + 1]):
                compared += 1
                if at.state[box] != DEAD and _in_box(at, box, here, event * d):
                    rows = _grown(rows, filled)
                    rows[filled] = at.row[box]
                    filled += 1
                    is_one &= at.state[box]
        if is_one == 0:
            filled = _distinct(rows, begun, filled)
        offsets[event + 1] = filled
    return rows[:filled], verified, compared


_POSTINGS = table_size(Postings)


@jit_single
def match_single(table: I64, points: F64, others: I32) -> I32:
    """Kernel of a `SingleEvent`; the tables of `Postings` and `Programs` start at `OWN`."""
    reject_nan(points)
    offsets = np.empty(2, np.int64)
    tables = table[OWN:], table[OWN + _POSTINGS :]
    found, _, _ = search(*tables, points, np.empty(0, np.uint32), 0, offsets)
    rows = np.empty(len(found) + max_beside(table, others), np.int32)
    rows[: len(found)] = found
    return rows[: append_other_rows(table, points, others, rows, len(found))]
