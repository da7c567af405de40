"""Formatting of filter errors: the reason, the position, the line with a caret, a hint.

    expected a value, found the word tech (line 1, column 10)
      sector = tech
               ^^^^
    hint: put a text in quotes: 'tech'

For a long line only a window around the caret is shown, so messages stay short.
"""

from __future__ import annotations

from rangecast.errors import FilterError

_WINDOW = 72
_BEFORE = 36
_CLIPPED = 40


def clipped(text: str) -> str:
    """Truncate a text to one line, with an ellipsis if something is left out."""
    return _on_one_line(text if len(text) <= _CLIPPED else text[: _CLIPPED - 3] + "...")


def _on_one_line(text: str) -> str:
    # A tab or a control character would also move the caret away from its place.
    return "".join([c if c.isprintable() else " " for c in text])


def fault(text: str, start: int, end: int, problem: str, hint: str = "") -> FilterError:
    """Return the error that points at `text[start:end]`."""
    begin = text.rfind("\n", 0, start) + 1
    stop = text.find("\n", start)
    stop = len(text) if stop < 0 else stop
    left = begin
    if stop - begin > _WINDOW:
        left = max(begin, min(start - _BEFORE, stop - _WINDOW))
    right = min(stop, left + _WINDOW)
    dots_before, dots_after = "..." * (left > begin), "..." * (right < stop)
    carets = "^" * max(1, min(end, right) - start)
    line = text.count("\n", 0, start) + 1
    message = (
        f"{problem} (line {line}, column {start - begin + 1})\n"
        f"  {dots_before}{_on_one_line(text[left:right])}{dots_after}\n"
        f"  {' ' * (len(dots_before) + start - left)}{carets}"
    )
    error = FilterError(message, hint)
    error.span = start, max(start, end)
    return error
