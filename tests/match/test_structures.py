"""Common behaviour of the structures that match and rank: see `tests.support.structures`."""

import gc
import pickle
import subprocess
import sys
import weakref

import pytest

from tests.support.conformance import MATCHERS
from tests.support.structures import STRUCTURES, arrays_of, some_boxes

PLAIN = ("scan", "slabs", "cells")
"""Structures whose steps hold the arrays themselves, not only their addresses."""
VARIED_BY_DESIGN = {
    # Called by kernels alone: building writes the table that matching reads.
    "rangecast.match.papers.vcr.idlists.slot_of",
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_arrays_are_read_only_and_counted_before_and_after_a_pickle(name):
    boxes, points = some_boxes(3)
    build, ask = STRUCTURES[name]
    built = build(boxes)
    again = pickle.loads(pickle.dumps(built))
    assert ask(again, points) == ask(built, points)
    for one in (built, again):
        arrays = arrays_of(one)
        assert all(array.readonly for array in arrays)
        held, given = (sum(map(len, each)) for each in (arrays, arrays_of(boxes)))
        # It may leave out the boxes that it was given, and a few numbers.
        assert held - given - 64 <= one.memory <= held


@pytest.mark.parametrize("name", MATCHERS)
def test_a_stream_keeps_its_structure(name):
    """Kernels are given addresses of arrays: a structure that nobody else holds must stay."""
    boxes, points = some_boxes(2, 50)
    built = MATCHERS[name](boxes)
    lives = weakref.ref(built)
    pieces = built.stream(points)
    del built
    gc.collect()
    assert lives() is not None or name.replace(":", " ").split()[0] in PLAIN
    assert sum(1 for _ in pieces) >= 1


@pytest.mark.process
def test_every_kernel_is_compiled_for_one_kind_of_arrays():
    """An array that is read-only in one place and not in another costs seconds of compiling."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.structures"],
        capture_output=True,
        text=True,
        check=True,
    )
    varied = {line for line in done.stdout.splitlines() if not line.startswith(" ")}
    assert varied <= VARIED_BY_DESIGN, done.stdout
