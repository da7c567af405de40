"""Terms as numbers of 64 bits, and the kinds of terms.

    1, 2, 3, 4   a run of this many bytes anywhere in a text
    WORD         a word of the form WORDS
    PREFIX       the first bytes of a text, SUFFIX the last ones, read backwards
    WHOLE        a whole text

Where a term is looked for, its *source*, is a number too: axis, form, kind and, of a prefix or a
suffix, its length.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rangecast.kernels.jit import jit

GRAMS = (1, 2, 3, 4)
"""Sizes of runs of bytes; the longest that fits is taken."""
WORD, PREFIX, SUFFIX, WHOLE = 5, 6, 7, 8
MAX_END = 255
"""Bytes of a prefix or a suffix that count."""
START = np.uint64(0x9E3779B97F4A7C15)
_STEP = np.uint64(0x100000001B3)
_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_ONE = np.uint64(1)


@jit
def mixed(value: Any, salt: Any) -> Any:
    """Return a number whose high bits depend on all bits of a value and a salt."""
    return (value ^ salt) * _FACTOR


@jit
def salt_of(axis: int, form: int, kind: int) -> Any:
    """Return what tells apart terms of one kind from all others."""
    return mixed(np.uint64(axis * 256 + form * 16 + kind), START)


@jit
def longer(run: Any, byte: Any) -> Any:
    """Extend the hash of a byte string by one byte; an empty string has the hash `START`."""
    return (run ^ (np.uint64(byte) + _ONE)) * _STEP


@jit
def source_of(axis: int, form: int, kind: int, length: int) -> int:
    """Return where a term is looked for."""
    return ((axis * 16 + form) * 16 + kind) * 256 + length
