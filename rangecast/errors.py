"""All errors that rangecast raises on purpose.

Each says what was given, what was expected and what to do. A `RangecastError` can be fixed by
the user (the shell exits with 2 and shows no traceback); any other exception is an internal error.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""`OSError` numbers: the disk is full, the quota is exhausted, or the file is too large."""
_MAX_LENGTH = 80
_COMPARED = 10_000
"""Maximum number of names that a misspelt name is compared with; a million would take minutes."""


class RangecastError(Exception):
    """Base class of all errors caused by input or by usage."""

    code = ""
    """Class name in a server's problem documents, from which a client raises the same class; empty:
    the client does not.
    """


class SpaceError(RangecastError):
    """A space definition is invalid: an attribute, or the TOML file."""

    code = "space"


class InvalidValueError(RangecastError, ValueError):
    """A value can't be a coordinate of its attribute."""

    code = "invalid_value"

    def __init__(self, reason: str, text: str | None = None):
        super().__init__(reason if text is None else f"{reason}, given: {text}")
        self.reason = reason
        """The reason without the value, for callers that print the value."""


class FilterError(RangecastError):
    """A filter text can't be parsed, or can never match. Shows the text with a caret."""

    code = "filter"

    def __init__(self, reason: str, hint: str = ""):
        super().__init__(f"{reason}\nhint: {hint}" if hint else reason)
        self.reason = reason
        self.hint = hint
        self.span: tuple[int, int] | None = None
        """Start and end of the offending text, if the error has a position."""


class FileError(RangecastError):
    """A file can't be read or written: missing, of an unknown format, with the wrong columns."""

    code = "file"


class SnapshotError(RangecastError):
    """A snapshot is damaged, incomplete, or of a format that this version doesn't know."""


class FrameError(RangecastError):
    """A frame from another broker can't be read, is too large, or refers to something unknown."""


class UsageError(RangecastError):
    """A call or command that can't be carried out as given, such as for an invalid argument."""

    code = "usage"


class UnknownIdError(UsageError, KeyError):
    """A set has no member with this id."""

    code = "unknown_id"

    def __str__(self) -> str:
        return str(self.args[0])  # a KeyError shows the repr


class DuplicateIdError(UsageError):
    """An id that must be new already exists, or is given twice."""

    code = "duplicate_id"


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """A row that can't be used, and the reason. Rows count from 0, in each file of a table."""

    source: str
    row: int | None
    """`None` where rows have no order; the source then identifies it."""
    column: str
    value: str
    reason: str
    remedy: str
    line: tuple[str, int] | None = None
    """The file and its line, counted from 1, where that is known."""
    more: int = 0
    """Number of other rows, read in the same step, with the same offending column, if known."""

    def __str__(self) -> str:
        where = self.source
        if self.line is not None:
            where = f"{self.line[0]}, line {self.line[1]} (row {self.row}, counted from 0)"
        elif self.row is not None:
            where += f", row {self.row} (counted from 0)"
        text = f"{where}, column {self.column!r}: {self.reason}\n  given: {self.value}"
        if self.more:
            text += f"\n  also: {self.more:,} more rows so far are rejected for {self.column!r}"
        return f"{text}\n  hint: {self.remedy}"


class RejectedRowError(RangecastError, ValueError):
    """A row of a file or table can't be used."""

    code = "rejected_row"

    def __init__(self, rejected: RejectedRow):
        super().__init__(str(rejected))
        self.rejected = rejected

    def __reduce__(self) -> tuple[type[RejectedRowError], tuple[RejectedRow]]:
        return RejectedRowError, (self.rejected,)  # so that it can come from another process


def abbreviate(value: Any) -> str:
    """Return a value shortened for an error message."""
    try:
        text = repr(value) if isinstance(value, str) else str(value)
    except Exception:  # its own methods may raise anything
        text = f"a {type(value).__name__} that can't be shown"
        if isinstance(value, int):  # Python doesn't write out one of more than 4300 digits
            text = f"an integer of {int.bit_length(value):,} bits"
    return text if len(text) <= _MAX_LENGTH else text[: _MAX_LENGTH - 3] + "..."


IGNORE_UNKNOWN = "ignore_unknown=True"
_OPTIONS = {
    IGNORE_UNKNOWN: {
        "shell": "--ignore-unknown",
        "http": "?ignore_unknown=true",
        "stream": "ignore_unknown = true",
    },
    "overwrite=True": {
        "shell": "--overwrite",
        "http": "overwrite=True",
        "stream": "replace = true",
    },
}
"""Options that messages name as in Python, and their spelling at the other interfaces."""
_TYPO = 0.8
"""Similarity, from 0 to 1, above which a name is taken for a typo of another."""


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """Return a hint: the closest known name, or the names to choose from."""
    known = known[:_COMPARED]
    close = get_close_matches(name, known, n=3, cutoff=0.6)
    if not close:
        folded = {k.casefold(): k for k in known}
        close = [folded[name.casefold()]] if name.casefold() in folded else []
    if close:
        return "did you mean " + " or ".join(repr(c) for c in close) + "?"
    shown = ", ".join(repr(k) for k in known[:10]) + (", ..." if len(known) > 10 else "")
    return f"known: {shown}" if known else "none are defined"


def unknown_hint(name: str, known: Sequence[str], *, may_ignore: bool) -> str:
    """Return a hint for an unknown column or field.

    A name close to a known one is a typo, so the hint doesn't suggest ignoring it.
    """
    folded = [candidate.casefold() for candidate in known]
    if get_close_matches(name.casefold(), folded, n=1, cutoff=_TYPO):
        return "correct the name"
    return f"rename it, or leave it out{f'; {IGNORE_UNKNOWN} ignores it' * may_ignore}"


def for_interface(text: str, interface: str) -> str:
    """Return a message with its Python option names replaced by those of an interface."""
    for option, spelled in _OPTIONS.items():
        text = text.replace(option, spelled[interface])
    return text


def from_interface(text: str, interface: str) -> str:
    """Return a message of another interface with its option names replaced by those of Python."""
    for option, spelled in _OPTIONS.items():
        text = text.replace(spelled[interface], option)
    return text


def choices_hint(name: str, known: Sequence[str]) -> str:
    """Return a hint: the closest known name, and all names to choose from."""
    hint = did_you_mean(name, known)
    return f"{hint} There is: {', '.join(known)}" if hint.startswith("did") else hint
