"""Build `Postings` from the anchors of words."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, U8, U64, Bool, offsets_of, ranges_of
from rangecast.kernels.bundle import Bundle, opened, pointers
from rangecast.kernels.jit import jit
from rangecast.match.terms.anchors import Seen, choose_anchors
from rangecast.match.terms.hashes import (
    GRAMS,
    PREFIX,
    START,
    SUFFIX,
    WORD,
    longer,
    mixed,
    salt_of,
)
from rangecast.match.terms.requirements import Requirements
from rangecast.match.terms.search import (
    BYTES,
    COUNT,
    DEAD,
    LENGTH,
    LITERAL,
    MAX_LITERAL,
    ONE,
    POSTING,
    PREFIXES,
    SEVERAL,
    SEVERAL_BOXES,
    SIGNATURE,
    SLOT,
    SOURCE,
    SOURCE_OF,
    SUFFIXES,
    WORD_OF,
    Postings,
)
from rangecast.model.shapes.verification.programs import LITERAL as PROGRAM
from rangecast.model.shapes.verification.programs import TEXT, Programs
from rangecast.model.text.programs import MATCH
from rangecast.model.text.programs import SIGNATURE as SIGNATURES

_FILTER = 3
"""The filter has this many bits of a hash more than the slots: 16 to 32 bits per term."""
_SPACE = 32.0


@jit
def _fill(
    keys: U64, ends: I64, filter_shift: int, slot_shift: int, filter_bits: U64, slots: U64
) -> None:
    """Put terms, ascending, into slots; the postings of each end where `ends` says."""
    begin = 0
    for i in range(len(keys)):
        term = keys[i]
        bit = np.int64(term >> np.uint64(filter_shift))
        filter_bits[bit >> 6] |= np.uint64(1) << np.uint64(bit & 63)
        slot = np.int64(term >> np.uint64(slot_shift))
        while slots[slot, 1]:
            slot += 1
        slots[slot, 0], slots[slot, 1] = term, begin << COUNT | (ends[i] - begin)
        begin = ends[i]


@jit
def _anchor_end(n: Any, first: int, length: int, source: int, term: Any) -> int:
    """Return where a term ends in a literal that has it; 0: it isn't one that is found there."""
    axis, form, kind = source // 65536, source // 4096 % 16, source // 256 % 16
    salt = salt_of(axis, form, kind)
    if kind <= GRAMS[-1]:
        for end in range(kind, length + 1):
            value = np.uint64(0)
            for i in range(first + end - kind, first + end):
                value = (value << np.uint64(8)) | np.uint64(n[i])
            if mixed(value, salt) == term:
                return end
    elif kind == WORD:
        run = START
        for i in range(length):
            if n[first + i] != _SPACE:
                run = longer(run, n[first + i])
            elif mixed(run, salt) == term:
                return i
            else:
                run = START
    return 0


@jit
def _put_literals(
    programs_table: I64, programs: I64, hashes: U64, sources: I64, postings: I64
) -> None:
    """Write the literals of postings whose word is one short literal anywhere in a text."""
    p = pointers(opened(programs_table, Programs))
    n = p.numbers
    for i in range(len(postings)):
        word = programs[postings[i, WORD_OF] & (SEVERAL - 1)]
        literal = PROGRAM * p.words[word]
        if p.words[word + 1] - p.words[word] != 1 or p.literals[literal + 1] != 0:
            continue
        first = p.literals[literal + 3]
        if p.literals[literal] != TEXT + MATCH or n[first] != 1.0:
            continue
        fixed, parts = n[first + 3], n[first + 4]
        part = first + 5 + SIGNATURES
        length, has_one = int(n[part]), n[part + 1]
        if fixed != 0.0 or parts != 1.0 or has_one != 0.0 or length > MAX_LITERAL:
            continue
        end = _anchor_end(n, part + 2, length, sources[i], hashes[i])
        if end:
            postings[i, LITERAL] = end << LENGTH | length
            for j in range(length):
                postings[i, BYTES + j // 8] |= np.int64(n[part + 2 + j]) << (8 * (j % 8))


class Boxed:
    """Boxes of rows, and for each the word that selects it."""

    def __init__(self, words: I64, row: I32, is_one: Bool, lo: F64, hi: F64, *, is_exact: bool):
        """`is_exact`: a box has no other verified conditions than its word."""
        self.is_exact = is_exact
        order = np.argsort(words, kind="stable")
        lo, hi = lo[order], hi[order]
        mentioned = (lo > -np.inf) | (hi < np.inf)
        box, axis = np.nonzero(mentioned)
        self.words = words[order]
        self.row = row[order]
        self.state: U8 = np.where(is_one[order], ONE, SEVERAL_BOXES).astype(np.uint8)
        self._by_row: list[tuple[I32, I64]] = []
        """Rows, ascending, and the box of each, once they were needed."""
        self.first_bound = offsets_of(np.count_nonzero(mentioned, axis=1))
        self.axis = axis.astype(np.int32)
        self.lo, self.hi = lo[box, axis], hi[box, axis]

    def without(self, rows: I64) -> Boxed:
        """Return the same boxes, of which those of some rows are dead."""
        if not self._by_row:
            order = np.argsort(self.row, kind="stable")
            self._by_row.append((self.row[order], order))
        ascending, box = self._by_row[0]
        first, last = (np.searchsorted(ascending, rows, side) for side in ("left", "right"))
        other = copy(self)
        other.state = self.state.copy()
        other.state[box[ranges_of(first, last - first)]] = DEAD
        return other


def make_postings(
    needed: Requirements,
    programs: Bundle[Programs],
    words: I64,
    boxed: Boxed,
    own: I64,
    seen: Seen,
) -> Bundle[Postings]:
    """Return postings of the anchors that are best by the events seen.

    words   the program of each word that is needed
    own     the word of each box, by its number among these
    """
    chosen, anchors, _ = choose_anchors(needed, seen)
    counts = needed.first[chosen + 1] - needed.first[chosen]
    alternatives = ranges_of(needed.first[chosen], counts)
    word = np.repeat(np.arange(len(chosen)), counts)
    word += SEVERAL * (counts > 1)[word]
    term = anchors[alternatives]
    order = np.argsort(needed.hashes[term], kind="stable")
    term, word, alternatives = term[order], word[order], alternatives[order]
    keys, begin = np.unique(needed.hashes[term], return_index=True)
    ends = np.append(begin[1:], len(term))
    places, flags, source = _sources(needed.sources[term])
    bits = max(8, int(2 * len(keys)).bit_length())
    shifts = 64 - bits - _FILTER, 64 - bits
    filter_bits = np.zeros(1 << (bits + _FILTER - 6), np.uint64)
    size = (1 << bits) + len(keys) + 1  # a run of slots may reach beyond the last one
    slots = np.zeros((size, SLOT), np.uint64)
    _fill(keys, ends, *shifts, filter_bits, slots)
    postings = np.zeros((len(term), POSTING), np.int64)
    postings[:, SIGNATURE] = needed.signatures[alternatives]
    postings[:, WORD_OF], postings[:, SOURCE_OF] = word, source
    _put_literals(programs.table, words, needed.hashes[term], needed.sources[term], postings)
    return Bundle(
        Postings(
            places,
            flags,
            *shifts,
            int(boxed.is_exact),
            filter_bits,
            slots,
            postings,
            words,
            offsets_of(np.bincount(own, minlength=len(words))),
            boxed.row,
            boxed.state,
            boxed.first_bound,
            boxed.axis,
            boxed.lo,
            boxed.hi,
        )
    )


def _sources(sources: I64) -> tuple[I64, U8, I64]:
    """Return axis and form of each source, the flags of the parts read, the source of each term."""
    texts, own = np.unique(sources // 4096, return_inverse=True)
    flags = np.zeros((len(texts), SOURCE), np.uint8)
    kinds, lengths = sources // 256 % 16, sources % 256
    flags[own, kinds] = 1
    for kind, first in ((PREFIX, PREFIXES), (SUFFIX, SUFFIXES)):
        of_kind = kinds == kind
        flags[own[of_kind], first + lengths[of_kind]] = 1
    return np.column_stack([texts // 16, texts % 16]), flags, own.astype(np.int64)
