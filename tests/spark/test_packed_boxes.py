"""Boxes travel as what they mention: nothing is lost on the way, whatever slice is read."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from rangecast.spark.subscriptions.packed_boxes import counts_of, pack, sizes_of, unpack
from tests.support import strategies


@given(strategies.boxes(), st.data())
def test_unpack_is_the_inverse_of_pack(boxes, data):
    sizes = np.diff(boxes.box_offsets)
    packed = pack(boxes.lo, boxes.hi, sizes)
    assert len(packed) == boxes.rows
    assert counts_of(packed) == (len(boxes.lo), boxes.mentions.sum())
    begin = data.draw(st.integers(0, boxes.rows))
    end = data.draw(st.integers(begin, boxes.rows))
    rows = np.arange(begin, end)
    some = boxes.take(rows)
    taken = packed.slice(begin, end - begin)
    middle = data.draw(st.integers(0, len(taken)))
    for part in (taken, pa.chunked_array([taken[:middle], taken[middle:]], pa.binary())):
        lo, hi, found = unpack(part, boxes.dimensions)
        assert np.array_equal(lo, some.lo)
        assert np.array_equal(hi, some.hi)
        assert found.tolist() == sizes[rows].tolist()
    assert sizes_of(pa.chunked_array([packed[:begin], packed[begin:]])).tolist() == sizes.tolist()


def test_what_is_not_mentioned_takes_no_bytes():
    lo, hi = np.full((2, 20), -np.inf), np.full((2, 20), np.inf)
    lo[0, 3], hi[1, [4, 5]] = 1.0, 2.0
    assert [len(one.as_py()) for one in pack(lo, hi, np.array([1, 1]))] == [18, 36]
    free = pack(lo[:, :3], hi[:, :3], np.array([0, 2]))
    assert [len(one.as_py()) for one in free] == [0, 36]
    assert counts_of(free) == (2, 0)
