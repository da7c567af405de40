"""Hints for unknown columns of a table, with the most likely name first."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from rangecast.errors import IGNORE_UNKNOWN, unknown_hint

_TYPO = 0.8
"""Names that are this similar, of 1, are taken for one another."""


def column_hint(name: str, known: Sequence[str], *, may_ignore: bool) -> str:
    """Return a hint for an unknown column: rename it, or else ignore it.

    may_ignore   whether the caller has an option to ignore such columns
    """
    folded = {column.casefold(): column for column in known}
    close = get_close_matches(name.casefold(), list(folded), n=1, cutoff=_TYPO)
    if not close:
        return unknown_hint(name, known, may_ignore=may_ignore)
    otherwise = f"; if it isn't a typo, {IGNORE_UNKNOWN} ignores it" if may_ignore else ""
    return f"rename it to {folded[close[0]]!r}{otherwise}"
