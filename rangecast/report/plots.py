"""One look for every plot. matplotlib loads when the first plot is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rangecast.errors import UsageError

COLOURS = ("#1f6f8b", "#e07a3f", "#6a994e", "#a23b72", "#f2b134", "#5c6b73", "#8d6a9f", "#bc4749")
"""In the order in which lines and bars take them."""

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
    "svg.hashsalt": "rangecast",
}


@contextmanager
def figure(
    path: str | Path, *, columns: int = 1, rows: int = 1, size: tuple[float, float] = (7.0, 4.0)
) -> Iterator[Any]:
    """Hand out the axes of a figure, (rows, columns) of them; write it when they are drawn.

    The format is the suffix of `path`: png or svg. `size` is that of one pair of axes, in inches.
    """
    try:
        import matplotlib
        from cycler import cycler
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError(
            "a plot needs matplotlib; to do: pip install 'rangecast[report]'"
        ) from None
    with matplotlib.rc_context({**STYLE, "axes.prop_cycle": cycler(color=COLOURS)}):
        drawing = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
        FigureCanvasAgg(drawing)
        yield drawing.subplots(rows, columns, squeeze=False)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        drawing.savefig(path, metadata={"Date": None} if str(path).endswith(".svg") else None)


@contextmanager
def plot(
    path: str | Path,
    *,
    title: str,
    x: str = "",
    y: str = "",
    size: tuple[float, float] = (7.0, 4.0),
) -> Iterator[Any]:
    """Hand out one pair of axes with its title and labels set; a legend is added if one is due."""
    with figure(path, size=size) as axes:
        one = axes[0, 0]
        one.set(title=title, xlabel=x, ylabel=y)
        yield one
        if len(one.get_legend_handles_labels()[0]) > 1:
            one.legend()
