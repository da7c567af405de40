"""Common style of all plots. matplotlib loads when the first plot is drawn.

A plot goes to a file, or into a page as an `Svg`: then its colours are the page's own (CSS
variables, see html.py), so that it is readable on a light and on a dark ground.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rangecast.errors import UsageError

COLOURS = ("#1f6f8b", "#e07a3f", "#6a994e", "#a23b72", "#f2b134", "#5c6b73", "#8d6a9f", "#bc4749")
"""Colours, in the order in which lines and bars use them."""

STYLE: dict[Any, Any] = {
    "figure.dpi": 120,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "grid.color": "#e3e3e3",
    "font.size": 10,
    "legend.frameon": False,
    "date.converter": "concise",
    "svg.hashsalt": "rangecast",
}

_INK, _LINE = "#010203", "#040506"
"""Placeholders for the page's colours while a plot is drawn."""
_PAGE_COLOURS = {
    _INK: "var(--ink)",
    _LINE: "var(--line)",
    **{colour: f"var(--c{index})" for index, colour in enumerate(COLOURS)},
}
_PAGE_STYLE: dict[Any, Any] = {
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), _INK),
    "axes.edgecolor": _LINE,
    "grid.color": _LINE,
    "grid.linewidth": 0.6,
    "xtick.color": _LINE,
    "ytick.color": _LINE,
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
    "svg.fonttype": "none",
    "text.parse_math": False,  # a user's text may hold dollars
    "savefig.transparent": True,
}


@dataclass
class Svg:
    """A plot as an SVG element, once it is drawn."""

    label: str
    """Description of the picture, for screen readers."""
    text: str = ""


def need_matplotlib() -> None:
    """Raise `UsageError` if matplotlib isn't installed, before a long computation starts."""
    if find_spec("matplotlib") is None:
        raise UsageError("a plot needs matplotlib; hint: pip install 'rangecast[report]'")


@contextmanager
def figure(
    path: str | Path | Svg,
    *,
    columns: int = 1,
    rows: int = 1,
    size: tuple[float, float] = (7.0, 4.0),
) -> Iterator[Any]:
    """Yield the axes of a figure, (rows, columns); write the figure afterwards.

    The format is the suffix of `path`: png or svg; an `Svg` is for a page. `size` is
    that of one pair of axes, in inches.
    """
    need_matplotlib()
    import matplotlib
    from cycler import cycler
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    style = STYLE | (_PAGE_STYLE if isinstance(path, Svg) else {})
    with matplotlib.rc_context({**style, "axes.prop_cycle": cycler(color=COLOURS)}):
        drawing = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
        FigureCanvasAgg(drawing)
        yield drawing.subplots(rows, columns, squeeze=False)
        if isinstance(path, Svg):
            drawn = io.StringIO()
            drawing.savefig(drawn, format="svg", metadata={"Date": None})
            path.text = _for_a_page(drawn.getvalue(), path.label)
            return
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        drawing.savefig(path, metadata={"Date": None} if str(path).endswith(".svg") else None)


def _for_a_page(drawn: str, label: str) -> str:
    """Return an SVG as one element: without prolog, size and group ids, in the page's colours."""
    body = drawn[drawn.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'<g id="[^"]*">', "<g>", body)
    body = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", body)
    for colour, named in _PAGE_COLOURS.items():
        body = body.replace(colour, named)
    _, box, rest = re.split(r'(viewBox="[^"]*")', body, maxsplit=1)
    rest = rest[rest.index(">") :]
    return f'<svg role="img" aria-label="{escape(label)}" {box}{rest}'


@contextmanager
def plot(
    path: str | Path | Svg,
    *,
    title: str,
    x: str = "",
    y: str = "",
    size: tuple[float, float] = (7.0, 4.0),
) -> Iterator[Any]:
    """Yield one pair of axes with its title and labels; a legend is added if needed."""
    with figure(path, size=size) as axes:
        axis = axes[0, 0]
        axis.set(title=title, xlabel=x, ylabel=y)
        yield axis
        if len(axis.get_legend_handles_labels()[0]) > 1:
            axis.legend()
