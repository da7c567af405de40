"""The verification steps of `rangecast demo`: matches and covering."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rangecast.cli.commands.events.verify import in_words, verified
from rangecast.cli.shared.run import Run
from rangecast.kernels.arrays import I32
from rangecast.model.boxes import Boxes
from rangecast.model.space import Space
from rangecast.report.facts import Proof

_COMPARED = 1_000
"""Number of searches compared with all others."""


def prove_matches(
    run: Run, quotes: Path, space: Space, name: str, sets: Path, result: Path
) -> tuple[Proof, str]:
    """Verify a result against the local engine; return the outcome, also in words."""
    verdict = verified(run, quotes, sets, result, space)
    missing, extra, twice = verdict.missing_pairs, verdict.extra_pairs, verdict.pairs_twice
    others = sum(verdict.differences().values()) - missing - extra - twice
    counts = verdict.events, verdict.pairs, missing, extra, twice, others
    return Proof(name, *counts, verdict.holds), in_words(verdict, str(result))


def is_right(boxes: Boxes, covered: I32) -> bool:
    """Return whether covered searches lie in their coverers, and uncovered ones in no other.

    Compares a sample of the searches with all uncovered ones, box by box.
    """
    kept = np.flatnonzero(covered < 0)
    of_kept = np.isin(boxes.owner, kept)
    lo, hi, owner = boxes.lo[of_kept], boxes.hi[of_kept], boxes.owner[of_kept]
    for row in range(0, boxes.rows, max(1, boxes.rows // _COMPARED)):
        own = np.flatnonzero(boxes.owner == row)
        within: set[int] | None = None
        for box in own:
            holds = (lo <= boxes.lo[box]).all(axis=1) & (hi >= boxes.hi[box]).all(axis=1)
            owners = set(owner[holds].tolist()) - {row}
            within = owners if within is None else within & owners
        coverers = within or set()
        right = covered[row] in coverers if covered[row] >= 0 else not coverers
        if not right:
            return False
    return True
