"""Postings of anchors, and the kernel that finds candidates by the terms of texts.

    sources    (axis, form) that are read, and which kinds of terms
    filter     bits of the hashes that are anchors: most terms of a text end here
    slots      a term lies in the slot that its hash says or in one of the next, with its postings
    postings   word, signature, source of its text and, of a word that is one short literal
               anywhere in a text, the literal: it is compared where its anchor was found, and no
               program runs
    boxes      of each word, those of its rows: bounds on the axes that they mention

Cost: the bytes of the texts, the postings of the anchors that occur, and the rows of words that
hold. Work: words verified, boxes compared.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, U8, U32, U64
from rangecast.kernels.bits import ZERO, prefetch
from rangecast.kernels.bundle import (
    bytes_at,
    integers_at,
    opened,
    pointer,
    pointers,
    table_size,
)
from rangecast.kernels.jit import jit, jit_single
from rangecast.match.single_event import (
    OWN,
    Numbers,
    append_other_rows,
    max_beside,
    reject_nan,
)
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
_ROOM = 512
"""Hits at first."""
_FEW_BOXES = 4
"""Boxes of a word up to which they are compared before its program runs."""
_FEW = 24
"""Numbers that are sorted by insertion."""
_SIGNED = 52
_MASK = (1 << _SIGNED) - 1
SEVERAL = 1 << 30
"""Added to a word of a posting that may be found by several terms."""
SEVERAL_BOXES, ONE, DEAD = 0, 1, 2
SLOT, POSTING = 2, 6
"""Numbers of a slot: the term, and its first posting and their number; and of a posting."""
COUNT = 32
"""Bits of a slot that are the number of its postings."""
_COUNTED = (1 << COUNT) - 1
SIGNATURE, WORD_OF, SOURCE_OF, LITERAL, BYTES = 0, 1, 2, 3, 4
"""A posting. Its literal, 0 if it has none: its length, and where its anchor ends in it."""
MAX_LITERAL = 16
LENGTH = 8
"""Bits of a literal that are its length."""
_EVERY, _ALL = np.full(1, ~np.uint64(0)), 58
"""A filter that lets every term pass, and the low bits of a hash that say nothing of its bit."""
_END = 32
"""Bits of a hit that say where the term ends in its text."""


class Postings(NamedTuple):
    """Postings of anchors, and the boxes of words."""

    source_of: Annotated[I64, 2]
    """(sources, 2): axis, form."""
    flags: Annotated[U8, 2]
    """(sources, SOURCE)."""
    filter_shift: int
    slot_shift: int
    """Low bits of a hash that say nothing of its bit in the filter, and of its slot."""
    is_exact: int
    """Whether a box that contains an event and whose word holds is a match: it has no other."""
    filter: U64
    slots: Annotated[U64, 2]
    """(slots, SLOT)."""
    postings: Annotated[I64, 2]
    """(postings, POSTING)."""
    programs: I64
    """The program of each word."""
    first_box: I64
    row: I32
    """(boxes,) each."""
    state: U8
    """(boxes,) `ONE` if the row has no other box, `SEVERAL_BOXES`, or `DEAD`."""
    first_bound: I64
    axis: I32
    lo: F64
    hi: F64


@jit
def _grown(buffer: Any, filled: int) -> Any:
    """Return a larger buffer with the same items."""
    larger = np.empty(2 * filled, buffer.dtype)
    larger[:filled] = buffer[:filled]
    return larger


@jit
def _probe(filter_bits: Any, shift: int, term: Any, end: int, hits: Any, filled: int) -> int:
    """Append a term, and where it ends, if it may be an anchor."""
    bit = np.int64(term >> np.uint64(shift))
    hits[2 * filled], hits[2 * filled + 1] = np.int64(term), end
    return filled + int(filter_bits[bit >> 6] >> np.uint64(bit & 63) & np.uint64(1))


@jit
def _find_slots(slots: Any, shift: int, postings: Any, hits: Any, first: int, filled: int) -> int:
    """Replace terms by the slots of those that are anchors, and prefetch their postings.

    A hit is a slot, and where the term ends in its text.
    """
    for h in range(first, filled):
        prefetch(slots, SLOT * np.int64(np.uint64(hits[2 * h]) >> np.uint64(shift)))
    last = first
    for h in range(first, filled):
        term, end = np.uint64(hits[2 * h]), hits[2 * h + 1]
        slot = np.int64(term >> np.uint64(shift))
        while slots[SLOT * slot + 1] and slots[SLOT * slot] != term:
            slot += 1
        if slots[SLOT * slot + 1]:
            prefetch(postings, POSTING * np.int64(slots[SLOT * slot + 1] >> np.uint64(COUNT)))
            hits[last] = slot << _END | end
            last += 1
    return last


@jit
def _count(counts: Any, hits: Any, first: int, last: int) -> None:
    """Count the terms of some hits."""
    for h in range(first, last):
        counts[counter(np.uint64(hits[2 * h]))] += np.uint32(1)


@jit
def _max_terms(flags: Any, size: int) -> int:
    """Return the maximum number of terms of a text, plus one."""
    kinds = 0
    for kind in range(KINDS):
        kinds += flags[kind]
    return kinds * (size + 1) + 1


@jit
def _scan_source(
    filter_bits: Any,
    shift: int,
    flags: Any,
    axis: int,
    form: int,
    text: Any,
    size: int,
    hits: Any,
    filled: int,
) -> int:
    """Append the terms of a text that may be anchors; there is room for all of them.

    Where a term ends matters for those that may lie anywhere.
    """
    for kind in GRAMS:
        if flags[kind]:
            salt = salt_of(axis, form, kind)
            window = np.uint64(0)
            mask = (np.uint64(1) << np.uint64(8 * kind)) - np.uint64(1)
            for i in range(size):
                window = (window << np.uint64(8)) | np.uint64(text[i])
                if i + 1 >= kind:
                    term = mixed(window & mask, salt)
                    filled = _probe(filter_bits, shift, term, i + 1, hits, filled)
    if flags[WORD]:
        salt = salt_of(axis, form, WORD)
        run = START
        for i in range(1, size):
            if text[i] != 32:
                run = longer(run, text[i])
            elif run != START:
                filled = _probe(filter_bits, shift, mixed(run, salt), i, hits, filled)
                run = START
    if flags[PREFIX] or flags[WHOLE]:
        salt = salt_of(axis, form, PREFIX)
        run = START
        for i in range(size):
            if not flags[WHOLE] and i == MAX_END:
                break
            run = longer(run, text[i])
            if i < MAX_END and flags[PREFIXES + i + 1]:
                filled = _probe(filter_bits, shift, mixed(run, salt), size, hits, filled)
        if flags[WHOLE]:
            term = mixed(run, salt_of(axis, form, WHOLE))
            filled = _probe(filter_bits, shift, term, size, hits, filled)
    if flags[SUFFIX]:
        salt = salt_of(axis, form, SUFFIX)
        run = START
        for i in range(min(size, MAX_END)):
            run = longer(run, text[size - 1 - i])
            if flags[SUFFIXES + i + 1]:
                filled = _probe(filter_bits, shift, mixed(run, salt), size, hits, filled)
    return filled


@jit
def _distinct(numbers: Any, first: int, filled: int) -> int:
    """Sort `numbers[first:filled]`, remove duplicates in place, and return the new end."""
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
def _has_literal(postings: Any, posting: int, record: Any, end: int) -> bool:
    """Return whether a text has the literal of a posting, whose anchor ends at `end`."""
    literal = postings[posting + LITERAL]
    length = literal & ((1 << LENGTH) - 1)
    first = end - (literal >> LENGTH)
    if first < 0 or first + length > record[1]:
        return False
    text = bytes_at(record[0])
    for i in range(length):
        byte = postings[posting + BYTES + (i >> 3)] >> (8 * (i & 7)) & 0xFF
        if text[first + i] != byte:
            return False
    return True


@jit
def _list_words(at: Any, records: Any, hits: Any, filled: int, words: Any) -> tuple[int, int, bool]:
    """Write the words whose anchors occur, and whose signatures the text of the anchor has.

    A word is twice its number, + 1 if its program has to decide. Return how many these are, the
    number of literals compared, and whether a word may be there twice.
    """
    count, compared, is_repeated = 0, 0, False
    for h in range(filled):
        slot, end = hits[h] >> _END, hits[h] & ((1 << _END) - 1)
        is_again = h > 0 and hits[h - 1] >> _END == slot
        span = np.int64(at.slots[SLOT * slot + 1])
        first = span >> COUNT
        for number in range(first, first + (span & _COUNTED)):
            posting = POSTING * number
            record = integers_at(records[at.postings[posting + SOURCE_OF]])
            needed = at.postings[posting + SIGNATURE]
            if needed & _MASK & ~record[2 + (needed >> _SIGNED)] != 0:
                continue
            word, is_open = at.postings[posting + WORD_OF], 1
            if at.postings[posting + LITERAL]:
                is_open = 0
                compared += not is_again
                if not _has_literal(at.postings, posting, record, end):
                    continue
                is_repeated |= is_again
            elif is_again:
                continue
            is_repeated |= word >= SEVERAL
            words[count] = 2 * (word & (SEVERAL - 1)) + is_open
            count += 1
    return count, compared, is_repeated


@jit
def _postings_of(slots: Any, hits: Any, filled: int) -> int:
    """Return the number of postings of hits."""
    total = 0
    for h in range(filled):
        total += int(slots[SLOT * (hits[h] >> _END) + 1]) & _COUNTED
    return total


@jit
def _in_box(at: Any, box: int, points: Any, event: int) -> bool:
    for bound in range(at.first_bound[box], at.first_bound[box + 1]):
        if not at.lo[bound] <= points[event + at.axis[bound]] <= at.hi[bound]:
            return False
    return True


@jit
def _in_any_box(at: Any, first: int, last: int, points: Any, event: int) -> bool:
    for box in range(first, last):
        if at.state[box] != DEAD and _in_box(at, box, points, event):
            return True
    return False


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
    hits, words = np.empty(_ROOM, np.int64), np.empty(64, np.int64)
    rows = np.empty(max(64, 2 * len(points)), np.int32)
    filled = verified = compared = 0
    offsets[0] = 0
    for event in range(len(points)):
        count = 0
        bits, shift = at.filter, postings.filter_shift
        if event < learned:
            bits, shift = pointer(_EVERY, 0), _ALL
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
            records[source] = forms + 8 * RECORD * form
            flags = pointer(postings.flags, source * SOURCE)
            room = 2 * (count + _max_terms(flags, size))
            if room > len(hits):
                larger = np.empty(2 * room, np.int64)
                larger[:count] = hits[:count]
                hits = larger
            text = axis, form, bytes_at(own), size
            last = _scan_source(bits, shift, flags, *text, pointer(hits, 0), count)
            if event < learned:
                _count(counts, hits, count, last)
            slots = at.slots, postings.slot_shift, at.postings
            count = _find_slots(*slots, pointer(hits, 0), count, last)
        count = _distinct(hits, 0, count)
        listed = _postings_of(at.slots, pointer(hits, 0), count)
        if listed > len(words):
            words = np.empty(2 * listed, np.int64)
        word_count, literals, is_repeated = _list_words(
            at, pointer(records, 0), pointer(hits, 0), count, pointer(words, 0)
        )
        if is_repeated:
            word_count = _distinct(words, 0, word_count)
        verified += literals
        begun, is_one = filled, 1
        for w in range(word_count):
            word = words[w] >> 1
            first, last = at.first_box[word], at.first_box[word + 1]
            if words[w] & 1:
                if last - first <= _FEW_BOXES:
                    compared += last - first
                    if not _in_any_box(at, first, last, here, event * d):
                        continue
                verified += 1
                if not holds(p, at.programs[word], here, event * d):
                    continue
            for box in range(first, last):
                compared += 1
                if at.state[box] != DEAD and _in_box(at, box, here, event * d):
                    if filled == len(rows):
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
    own, _, _ = search(*tables, points, np.empty(0, np.uint32), 0, offsets)
    is_exact, set_rows = opened(tables[0], Postings).is_exact, opened(table, Numbers).set_rows
    beside = max_beside(table, others)
    if is_exact and len(set_rows) == 0 and beside == 0:
        return own
    rows = np.empty(len(own) + beside, np.int32)
    rows[: len(own)] = own
    if not is_exact:
        return rows[: append_other_rows(table, points, others, rows, len(own))]
    if len(set_rows):
        for i in range(len(own)):
            rows[i] = set_rows[rows[i]]
    more = append_other_rows(table, points, others, rows[len(own) :], ZERO)
    return rows[: len(own) + more]
