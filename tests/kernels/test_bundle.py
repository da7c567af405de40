"""Bundles of arrays: the same in a kernel as outside, and checked through pointers on request."""

import os
import pickle
import subprocess
import sys
import types
from typing import Annotated, NamedTuple

import numpy as np
import pytest

from rangecast.kernels.arrays import F64, I32, grown, offsets_of
from rangecast.kernels.bits import at_least
from rangecast.kernels.bundle import Bundle, edited, opened, pointer, pointers
from rangecast.kernels.jit import jit


class Fixed(NamedTuple):
    values: F64
    grid: Annotated[I32, 2]
    size: int


@edited
class Room(NamedTuple):
    values: F64


@jit
def read(table):
    layout = opened(table, Fixed)
    flat = pointers(layout)
    total = 0.0
    for value in layout.values:
        total += value
    return total, layout.grid[1, 2], layout.grid.shape[1], flat.grid[5], layout.size


@jit
def write(table, at):
    opened(table, Room).values[at] = 7.0


def fixed():
    return Bundle(Fixed(np.arange(4.0), np.arange(6, dtype=np.int32).reshape(2, 3), 42))


def test_a_kernel_sees_the_arrays_under_their_names():
    for bundle in (fixed(), pickle.loads(pickle.dumps(fixed()))):
        assert read(bundle.table) == (6.0, 5, 3, 5, 42)
        assert not bundle.arrays.values.flags.writeable
        assert bundle.memory == 4 * 8 + 6 * 4
    assert len(read.signatures) == 1


def test_only_an_edited_layout_is_written():
    room = Bundle(Room(np.zeros(3)))
    write(room.table, 1)
    assert room.arrays.values.tolist() == [0.0, 7.0, 0.0]
    larger = room.grown(values=5)
    write(larger.table, 4)
    assert (len(room.arrays.values), larger.arrays.values[:5].tolist()) == (3, [0, 7, 0, 0, 7])
    assert larger.grown(values=5) is larger


@pytest.mark.parametrize(
    "values", [np.zeros(3, np.float32), np.zeros((3, 1)), np.zeros(6)[::2]], ids=str
)
def test_an_array_of_another_kind_is_rejected(values):
    with pytest.raises(TypeError, match=r"Room\.values takes a contiguous array of float64"):
        Bundle(Room(values))


CHECKED = """
import numpy as np
from tests.kernels.test_bundle import at, sixty_four
values, codes = np.zeros(10), np.zeros(100, np.uint8)
assert at(values, 2, 7) == 0 and sixty_four(codes, 36) == ~np.uint64(0)
for ask, array, *given in (
    (at, values, 0, 10), (at, values, 0, -1), (at, values, 2, 8), (at, values, 11, 0),
    (sixty_four, codes, 37), (sixty_four, codes, -1),
):
    try:
        ask(array, *given)
    except IndexError:
        continue
    raise SystemExit(f"not noticed: {ask.__name__}{given}")
"""


@jit
def at(values, first, index):
    return pointer(values, first)[index]


@jit
def sixty_four(codes, begin):
    return at_least(pointer(codes, 0), begin, np.uint8(0))


def test_an_array_may_be_annotated_by_an_alias():
    class Aliased(NamedTuple):
        values: types.GenericAlias(np.ndarray, (np.int32,))  # NDArray[int32] with NumPy 2.5

    Bundle(Aliased(np.arange(3, dtype=np.int32)))
    with pytest.raises(TypeError, match="int32"):
        Bundle(Aliased(np.arange(3.0)))


@pytest.mark.process
def test_with_the_bounds_check_on_pointers_are_checked():
    run = subprocess.run(
        [sys.executable, "-c", CHECKED],
        env=os.environ | {"NUMBA_BOUNDSCHECK": "1"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr


PLANTED = """
import numpy as np
from rangecast.kernels.bundle import Bundle
from rangecast.notify.line.objects_line import Line, change_all
from tests.kernels.test_bundle import Room, cell, fixed, item, write

def line(place):
    numbers = [np.zeros(32, kind) for kind in (float, float, np.int64, np.int32)]
    nodes = np.full(2, np.inf), np.zeros(2, np.int64)
    held = np.array([1], np.int32), np.zeros(1)
    return Bundle(Line(*numbers, *held, *nodes, np.array([place])))

bundles = fixed(), Bundle(Room(np.zeros(3))), line(0), line(32)  # they own their arrays
table, room, good, wrong = (bundle.table for bundle in bundles)
slots, ys = np.zeros(1, np.int32), np.ones(1)
change_all(good, slots, ys)
assert item(table, 3) == 3 and cell(table, 1, 2) == 5
write(room, 2)
for ask, *given in (
    (item, table, 4), (item, table, 1 << 40), (cell, table, 2, 0), (cell, table, 0, 3),
    (write, room, 3),                               # a read or write beyond an array
    (change_all, wrong, slots, ys),                 # a number within one that is too large
    (change_all, good, slots + 1, ys),              # an input of a kernel that is
    (change_all, good, np.zeros(2, np.int32), ys),  # two inputs that don't fit each other
):
    try:
        ask(*given)
    except IndexError:
        continue
    raise SystemExit(f"not noticed: {ask.__name__}{given}")
"""


@jit
def item(table, index):
    return opened(table, Fixed).values[index]


@jit
def cell(table, row, column):
    return opened(table, Fixed).grid[row, column]


@pytest.mark.process
def test_with_the_bounds_check_on_a_read_beyond_an_array_of_a_bundle_raises():
    run = subprocess.run(
        [sys.executable, "-c", PLANTED],
        env=os.environ | {"NUMBA_BOUNDSCHECK": "1"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr


def test_small_mechanisms():
    assert offsets_of([2, 0, 3]).tolist() == [0, 2, 2, 5]
    assert offsets_of([]).tolist() == [0]
    larger = grown(np.array([1, 2]), 3, fill=-1)
    assert (larger[:3].tolist(), len(larger)) == ([1, 2, -1], 64)
