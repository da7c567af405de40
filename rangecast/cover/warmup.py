"""Covering of a whole set without kernels, while they would first have to be compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rangecast.cover.batch import covered_by
from rangecast.cover.blocks.index import Blocks
from rangecast.cover.graph import kernels_for
from rangecast.cover.plain import covered_plainly
from rangecast.kernels.ahead import WHY, starts_with_numpy
from rangecast.kernels.arrays import I32
from rangecast.kernels.jit import is_compiled
from rangecast.model.answers.answerer import Choice
from rangecast.model.boxes import Boxes

_MAX_BOXES = 20_000
"""Number of boxes beyond which comparing all pairs takes longer than compiling."""


def begin(boxes: Boxes) -> tuple[Callable[[Boxes], I32], Choice]:
    """Return `covered_by`, or an equivalent that needs no compilation, and the reason."""
    if _is_small(boxes) and starts_with_numpy(boxes.lo.size, "cover", _kernel(boxes)):
        return covered_plainly, Choice("scan", WHY)
    return covered_by, Choice(Blocks.name, f"{len(boxes.lo):,} boxes in tiles, the largest first")


def at_hand(boxes: Boxes) -> Callable[[Boxes], I32]:
    """Return the function for a set that is compared once: a small set compiles nothing."""
    return covered_plainly if _is_small(boxes) and not is_compiled(_kernel(boxes)) else covered_by


def _is_small(boxes: Boxes) -> bool:
    return len(boxes.lo) <= _MAX_BOXES


def _kernel(boxes: Boxes) -> Callable[..., Any]:
    return kernels_for(Blocks(boxes.dimensions)).earliest_above
