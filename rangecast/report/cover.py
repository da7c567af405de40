"""Report on redundant subscriptions: their number, the main coverers, the savings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rangecast.kernels.arrays import I32, Bool
from rangecast.model.boxes import Boxes
from rangecast.model.filters.filter import Filter
from rangecast.model.space import Space
from rangecast.report.plots import figure

_TOP = 10
"""Number of coverers listed."""
_SHOWN = 48
"""Maximum characters of a filter in a plot."""


class Coverer(NamedTuple):
    """An uncovered subscription that covers others."""

    subscription: Any
    covers: int
    """Number of subscriptions that it covers."""
    filter: str


class Group(NamedTuple):
    """Subscriptions that mention the same number of attributes, and how many are redundant."""

    attributes: int
    subscriptions: int
    redundant: int


@dataclass(frozen=True)
class Redundancy:
    """Redundancy of a set, subscription by subscription."""

    subscriptions: int
    redundant: int
    equal: int
    """Number of redundant subscriptions that are equal to an uncovered one."""
    coverers: list[Coverer]
    """Coverers, the largest first."""
    by_attributes: list[Group]

    @property
    def uncovered(self) -> int:
        """Number of subscriptions that must be advertised."""
        return self.subscriptions - self.redundant

    @property
    def saved(self) -> float:
        """Share of subscriptions that need not be advertised."""
        return self.redundant / max(1, self.subscriptions)


def redundancy(space: Space, boxes: Boxes, covered_by: I32) -> Redundancy:
    """Summarize the result of `covered_by`."""
    covered = covered_by >= 0
    counts = np.bincount(covered_by[covered], minlength=boxes.rows)
    biggest = np.argsort(-counts, kind="stable")[:_TOP]
    mentions = np.zeros((boxes.rows, boxes.dimensions), np.bool_)
    np.logical_or.at(mentions, boxes.owner, boxes.mentions)
    attributes = mentions.sum(axis=1)
    return Redundancy(
        subscriptions=boxes.rows,
        redundant=int(covered.sum()),
        equal=int(_equal(boxes, covered_by).sum()),
        coverers=[
            Coverer(boxes.ids[row].as_py(), int(counts[row]), _text(space, boxes, row))
            for row in biggest.tolist()
            if counts[row]
        ],
        by_attributes=[
            Group(number, int(mine.sum()), int(covered[mine].sum()))
            for number in np.unique(attributes).tolist()
            for mine in (attributes == number,)
        ],
    )


def _text(space: Space, boxes: Boxes, row: int) -> str:
    mine = slice(*np.searchsorted(boxes.owner, [row, row + 1]))
    return str(Filter.from_boxes(space, boxes.lo[mine], boxes.hi[mine]))


def _equal(boxes: Boxes, covered_by: I32) -> Bool:
    """Return whether each subscription has exactly the boxes of its coverer."""
    first = boxes.box_offsets
    sizes = np.diff(first)
    rows = np.flatnonzero(covered_by >= 0)
    rows = rows[sizes[rows] == sizes[covered_by[rows]]]
    equal = np.zeros(boxes.rows, np.bool_)
    if len(rows):
        count = sizes[rows]
        starts = np.cumsum(count) - count
        within = np.arange(count.sum()) - np.repeat(starts, count)
        mine = np.repeat(first[rows], count) + within
        other = np.repeat(first[covered_by[rows]], count) + within
        same = (boxes.lo[mine] == boxes.lo[other]) & (boxes.hi[mine] == boxes.hi[other])
        equal[rows] = np.logical_and.reduceat(same.all(axis=1), starts)
    return equal


def draw(path: str | Path, redundancy: Redundancy) -> None:
    """Draw the main coverers, and redundancy by the number of attributes mentioned."""
    with figure(path, columns=2, size=(6.4, 4.2)) as axes:
        left, right = axes[0]
        left.set(title="Redundant by attributes mentioned", xlabel="attributes mentioned")
        left.set_ylabel("subscriptions")
        places = range(len(redundancy.by_attributes))
        uncovered = [group.subscriptions - group.redundant for group in redundancy.by_attributes]
        redundant = [group.redundant for group in redundancy.by_attributes]
        left.bar(places, uncovered, label="uncovered")
        left.bar(places, redundant, bottom=uncovered, label="redundant")
        left.set_xticks(places, [str(group.attributes) for group in redundancy.by_attributes])
        left.grid(axis="x", visible=False)
        left.legend()
        right.set(title="The biggest coverers", xlabel="subscriptions that each makes redundant")
        right.grid(axis="y", visible=False)
        names = [
            _shortened(f"{coverer.subscription}: {coverer.filter}")
            for coverer in redundancy.coverers
        ]
        right.barh(
            range(len(names)), [coverer.covers for coverer in redundancy.coverers], color="#e07a3f"
        )
        right.set_yticks(range(len(names)), names, fontsize=8)
        right.invert_yaxis()


def _shortened(text: str) -> str:
    text = text.replace("$", r"\$")  # a pair of them would be taken for a formula
    return text if len(text) <= _SHOWN else text[: _SHOWN - 4] + " ..."
