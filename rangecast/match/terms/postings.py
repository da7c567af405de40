"""Making `Postings` from the anchors of words."""

from __future__ import annotations

from copy import copy

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, U8, U64, Bool, offsets_of, ranges_of
from rangecast.kernels.bundle import Bundle
from rangecast.kernels.jit import jit
from rangecast.match.terms.anchors import Seen, choose_anchors
from rangecast.match.terms.hashes import PREFIX, SUFFIX
from rangecast.match.terms.requirements import Requirements
from rangecast.match.terms.search import (
    DEAD,
    ONE,
    PREFIXES,
    SEVERAL,
    SEVERAL_BOXES,
    SOURCE,
    SUFFIXES,
    Postings,
)

_FILTER = 3
"""The filter has this many bits of a hash more than the slots: 16 to 32 bits per term."""


@jit
def _fill(
    keys: U64,
    ends: I64,
    sources: I64,
    filter_shift: int,
    slot_shift: int,
    filter_bits: U64,
    slots: U64,
    first: I64,
    last: I64,
    source: I64,
) -> None:
    """Put terms, ascending, into slots; the postings of each end where `ends` says."""
    begin = 0
    for i in range(len(keys)):
        term = keys[i]
        bit = np.int64(term >> np.uint64(filter_shift))
        filter_bits[bit >> 6] |= np.uint64(1) << np.uint64(bit & 63)
        slot = np.int64(term >> np.uint64(slot_shift))
        while first[slot] < last[slot]:
            slot += 1
        slots[slot], first[slot], last[slot], source[slot] = term, begin, ends[i], sources[i]
        begin = ends[i]


class Boxed:
    """Boxes of rows, and for each the word that selects it."""

    def __init__(self, words: I64, row: I32, is_one: Bool, lo: F64, hi: F64):
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
    needed: Requirements, programs: I64, boxed: Boxed, own: I64, seen: Seen
) -> Bundle[Postings]:
    """Return postings of the anchors that are best by the events seen.

    programs   the program of each word that is needed
    own        the word of each box, by its number among these
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
    slots = np.zeros(size, np.uint64)
    first, last, source_of = (np.zeros(size, np.int64) for _ in range(3))
    _fill(keys, ends, source[begin], *shifts, filter_bits, slots, first, last, source_of)
    return Bundle(
        Postings(
            places,
            flags,
            *shifts,
            filter_bits,
            slots,
            first,
            last,
            source_of,
            word.astype(np.int32),
            needed.signatures[alternatives],
            programs,
            offsets_of(np.bincount(own, minlength=len(programs))),
            boxed.row,
            boxed.state,
            boxed.first_bound,
            boxed.axis,
            boxed.lo,
            boxed.hi,
        )
    )


def _sources(sources: I64) -> tuple[I64, U8, I64]:
    """Return axis and form of each source, what is read of it, and the source of each term."""
    texts, own = np.unique(sources // 4096, return_inverse=True)
    flags = np.zeros((len(texts), SOURCE), np.uint8)
    kinds, lengths = sources // 256 % 16, sources % 256
    flags[own, kinds] = 1
    for kind, first in ((PREFIX, PREFIXES), (SUFFIX, SUFFIXES)):
        some = kinds == kind
        flags[own[some], first + lengths[some]] = 1
    return np.column_stack([texts // 16, texts % 16]), flags, own.astype(np.int64)
