"""All structures that match and rank: one list for what each must do.

`STRUCTURES` names each with its builder and a question, asked of one event and of many. Run as a
program, it builds and asks them all, each fresh and from a pickle, and prints the kernels that
were compiled for more than one signature.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.core.registry import CPUDispatcher

from rangecast.model.boxes import Boxes
from rangecast.rank.choose import INDEXES as RANKERS
from tests.support.conformance import MATCHERS


class Structure(NamedTuple):
    build: Callable[[Boxes], Any]
    ask: Callable[[Any, np.ndarray], object]


def ranked(structure: Any, points: np.ndarray) -> object:
    best = structure.best(points, 5)
    return best.rows.tolist(), best.scores.tolist()


def matched(structure: Any, points: np.ndarray) -> object:
    found = structure.match(points)
    return [sorted(found.of(event).tolist()) for event in range(len(points))]


STRUCTURES = {f"match {name}": Structure(build, matched) for name, build in MATCHERS.items()} | {
    f"rank {name} {'relaxed' if relaxed else 'exact'}": Structure(
        partial(build, relaxed=relaxed), ranked
    )
    for name, build in RANKERS.items()
    for relaxed in (False, True)
}


def some_boxes(dimensions: int = 2, count: int = 700) -> tuple[Boxes, np.ndarray]:
    """Boxes of every sort, several per subscription, and events, some with missing values."""
    rng = np.random.default_rng(dimensions)
    lo = rng.integers(0, 40, (count, dimensions)).astype(float)
    hi = lo + rng.integers(0, 15, (count, dimensions))
    free = rng.random(lo.shape) < 0.2
    lo[free], hi[free] = -np.inf, np.inf
    owner = np.unique(np.sort(rng.integers(0, count, count)), return_inverse=True)[1]
    scores = rng.integers(0, 9, int(owner[-1]) + 1).astype(float)
    points = rng.integers(0, 50, (60, dimensions)).astype(float)
    points[rng.random(points.shape) < 0.1] = np.inf
    return Boxes.of(lo, hi, owner=owner, scores=scores), points


def arrays_of(structure: Any) -> list[memoryview]:
    """The memory of each array that a structure holds, once, by way of its pickle."""
    found: list[pickle.PickleBuffer] = []
    pickle.dumps(structure, protocol=5, buffer_callback=found.append)
    views = [buffer.raw() for buffer in found]
    return [view for view in views if isinstance(view.obj, np.ndarray)]


def kernels() -> Iterator[tuple[str, CPUDispatcher]]:
    """Every compiled function of the modules that are loaded, under its full name."""
    for name, module in sorted(sys.modules.items()):
        if name.startswith("rangecast."):
            for each in vars(module).values():
                if isinstance(each, CPUDispatcher) and each.py_func.__module__ == name:
                    yield f"{name}.{each.py_func.__qualname__}", each


def ask_all() -> None:
    """Ask in every way that a caller may: read-only or not, one event or many, from a pickle."""
    for dimensions in (1, 3):
        boxes, points = some_boxes(dimensions)
        frozen = points.copy()
        frozen.flags.writeable = False
        for build, ask in STRUCTURES.values():
            structure = build(boxes)
            for one in (structure, pickle.loads(pickle.dumps(structure))):
                for given in (points, frozen, points[:1], frozen[7:8]):
                    ask(one, given)


def _arrays_taken(signature: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the array types of a signature: numba makes variants for literals and slices."""
    taken = (each for each in signature if isinstance(each, types.Array))
    return tuple((each.dtype, each.ndim, each.mutable) for each in taken)


if __name__ == "__main__":
    ask_all()
    for name, kernel in kernels():
        if len({*map(_arrays_taken, kernel.signatures)}) > 1:
            print(name, *kernel.signatures, sep="\n    ")
