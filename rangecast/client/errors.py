"""Map a server's problem documents to the exception classes that `Engine` raises."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rangecast.errors import (
    DuplicateIdError,
    FileError,
    FilterError,
    InvalidValueError,
    RangecastError,
    RejectedRow,
    RejectedRowError,
    SpaceError,
    UnknownIdError,
    UsageError,
    abbreviate,
    from_interface,
)

_HINT = "hint: "
_REMEDY = "correct the value"
_LIBRARY = {
    kind.code: kind
    for kind in (
        *(DuplicateIdError, FileError, InvalidValueError, SpaceError),
        *(UnknownIdError, UsageError),
    )
}
"""Errors that are built from their message alone, by problem code."""


class ServerError(RangecastError):
    """The server rejected a request, or couldn't be reached."""

    def __init__(self, text: str, status: int | None = None):
        super().__init__(text)
        self.status = status
        """The HTTP status; `None`: there was no answer."""


def error_of(problem: Mapping[str, Any], status: int) -> RangecastError:
    """Return the error described by a problem document or an error frame."""
    code, text = problem.get("code"), from_interface(str(problem.get("detail", problem)), "http")
    if code == FilterError.code:
        reason, _, hint = text.rpartition(f"\n{_HINT}")
        error = FilterError(reason, hint) if reason else FilterError(text)
        error.span = tuple(problem["span"]) if "span" in problem else None
        return error
    return _LIBRARY[code](text) if code in _LIBRARY else ServerError(text, status)


def row_error(source: str, rejected: Mapping[str, Any], row: int, values: Any) -> RejectedRowError:
    """Return the error for a row that a server rejected, as a set raises it for a table.

    rejected   the server's entry: `reason` and `code`
    values     of the row, if it is a dict
    """
    code, text = rejected.get("code"), from_interface(rejected["reason"], "http")
    reason, _, remedy = text.rpartition(_HINT) if _HINT in text else (text, "", _REMEDY)
    reason, _, value = reason.rstrip().partition("\n  given: ")
    event = values if isinstance(values, Mapping) else {}
    column = "filter" if code == FilterError.code else _named(reason)
    if column in event and not value:
        value = abbreviate(event[column])
    reason = reason.removeprefix(f"{column!r}: ")
    return RejectedRowError(RejectedRow(source, row, column, value, reason, remedy))


def _named(reason: str) -> str:
    """Return the quoted column name at the start of a reason."""
    quoted = re.match(r"'([^']*)'", reason)
    return quoted[1] if quoted else ""
