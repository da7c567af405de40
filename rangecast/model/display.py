"""Display of objects in prompts and notebooks: one short line, or a small HTML table.

The size of both is bounded. Ids with any content are safe: lines have no line breaks or control
characters, and HTML is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice
from typing import Any

ITEMS = 3
"""Items that a line shows."""
ROWS = 10
"""Rows that a table shows, and items of a list in one of its cells."""
_WIDTH = 60
_CELL = 300


def brief(value: Any, width: int = _WIDTH) -> str:
    """Return the repr of a value, truncated to `width` characters."""
    if isinstance(value, str) and len(value) > width:
        value = value[:width] + "..."
    try:
        text = repr(value)
    except Exception:  # an object of a program may raise anything
        text = f"<{type(value).__name__}>"
    return cut(text, width)


def cut(text: str, width: int) -> str:
    """Truncate a text to `width` characters."""
    return text if len(text) <= width else text[: width - 3] + "..."


def few(items: Iterable[Any], total: int, most: int = ITEMS) -> str:
    """Return the first items as a list, and the total number if some are left out."""
    shown = [brief(item) for item in islice(items, most)]
    if total > len(shown):
        shown.append(f"... {total:,} in all")
    return f"[{', '.join(shown)}]"


def html_table(title: str, header: Sequence[str], rows: Iterable[Sequence[Any]], total: int) -> str:
    """Return the first rows as an HTML table; the last line says how many are left out.

    title   one-line title
    rows    texts are shown as they are, other cells by their repr
    total   total number of rows
    """
    shown = list(islice(rows, ROWS))
    lines = [_row("th", header), *(_row("td", cells) for cells in shown)]
    if total > len(shown):
        lines.append(f'<tr><td colspan="{len(header)}">... {total - len(shown):,} more</td></tr>')
    return f"<p>{escape(title)}</p><table>{''.join(lines)}</table>"


def _row(tag: str, cells: Sequence[Any]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(_cell(cell))}</{tag}>' for cell in cells)}</tr>"


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return few(value, len(value), ROWS)
    return cut(value, _CELL) if isinstance(value, str) else brief(value, _CELL)


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return a count with its noun: 1 row, 2 rows."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
