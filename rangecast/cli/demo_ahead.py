"""What `rangecast demo` does while Spark starts: its kernels are compiled, its searches covered.

The JVM takes seconds to come up and the workers to write the quotes; the driver has nothing to do
meanwhile. Whoever needs a kernel before it is ready waits for it.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from rangecast.cover.batch import covered_by
from rangecast.kernels.arrays import I32
from rangecast.match.answerer import MatchAnswerer
from rangecast.model.answers import Answerer, warm
from rangecast.model.boxes import Boxes
from rangecast.rank.answerer import RankAnswerer
from rangecast.workloads import generate
from rangecast.workloads.base import Workload

_COMPARED = 1_000
"""Searches that are compared with all others."""


class Ahead(NamedTuple):
    """What another thread works on."""

    searches: Future[Workload]
    covered: Future[I32]
    """The row of what covers each search, -1 for those that are kept."""

    @classmethod
    def begun(cls, subscriptions: int, seed: int) -> Ahead:
        """Begin, in another thread."""
        thread = ThreadPoolExecutor(1)
        searches = thread.submit(
            generate, "market", seed=seed, subscriptions=subscriptions, events=0
        )

        def compile_and_cover() -> I32:
            boxes = searches.result().boxes
            makers: list[type[MatchAnswerer] | type[RankAnswerer]] = [MatchAnswerer, RankAnswerer]
            for make in makers:
                answerer: Answerer = make.of(boxes)
                warm(answerer, boxes.dimensions)
            return covered_by(boxes)

        covered = thread.submit(compile_and_cover)
        thread.shutdown(wait=False)
        return cls(searches, covered)


def is_right(boxes: Boxes, covered: I32) -> bool:
    """Whether covered searches lie in what covers them, and kept ones in no other kept one.

    Plain comparisons of some searches, spread over all, with all that are kept, box by box.
    """
    kept = np.flatnonzero(covered < 0)
    of_kept = np.isin(boxes.owner, kept)
    lo, hi, owner = boxes.lo[of_kept], boxes.hi[of_kept], boxes.owner[of_kept]
    for row in range(0, boxes.rows, max(1, boxes.rows // _COMPARED)):
        own = np.flatnonzero(boxes.owner == row)
        within: set[int] | None = None
        for box in own:
            holds = (lo <= boxes.lo[box]).all(axis=1) & (hi >= boxes.hi[box]).all(axis=1)
            found = set(owner[holds].tolist()) - {row}
            within = found if within is None else within & found
        coverers = within or set()
        right = covered[row] in coverers if covered[row] >= 0 else not coverers
        if not right:
            return False
    return True
