"""Quiet ranges: values of an object that change no list, as wide as they can be."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast import Number, Space
from rangecast.errors import UnknownIdError, UsageError
from rangecast.notify import Board
from tests.support.examples import examples
from tests.support.notify import EXACT, make
from tests.support.notify_model import Model, boards, changes

MAX = float(np.finfo(np.float64).max)


def lists_if(model, interests, k, name, value):
    """All lists, if an object had another value."""
    known = model.objects[name]
    model.objects[name] = (value, *known[1:])
    found = [model.best(lo, hi, k) for lo, hi in interests]
    model.objects[name] = known
    return found


def tried(lo, hi, value):
    """Values inside a range, its ends among them, and the next ones outside."""
    ends = [min(max(end, -MAX), MAX) for end in (lo, hi)]
    inside = [*ends, value, value + 1 if hi == math.inf else value]
    inside += [] if lo == -math.inf else [min(lo + 0.5, ends[1])]
    outside = [math.nextafter(lo, -math.inf), math.nextafter(hi, math.inf)]
    return inside, [end for end in outside if math.isfinite(end)]


@pytest.mark.conformance
@examples(60)
@given(st.data(), st.integers(1, 4), st.sampled_from(EXACT))
def test_a_range_is_quiet_and_the_widest_that_is(data, k, how):
    objects, interests = data.draw(boards())
    algorithm, sketch = how
    board = make(k, objects, interests, algorithm=algorithm, sketch=sketch)
    model = Model(objects)
    for change in [None, *data.draw(changes(objects, most=4))]:
        if change is not None:
            board.update_many([change])
            model.change(*change)
        for name, (value, *_) in model.objects.items():
            lo, hi = board.quiet_range(name)
            assert lo <= value <= hi
            inside, outside = tried(lo, hi, value)
            now = lists_if(model, interests, k, name, value)
            for other in inside:
                assert lists_if(model, interests, k, name, other) == now
            if sketch is None:  # of a sketch the range may be narrower
                for other in outside:
                    assert lists_if(model, interests, k, name, other) != now


@examples(30)
@given(st.data(), st.integers(1, 3))
def test_updates_within_a_quiet_range_reach_nobody(data, k):
    objects, interests = data.draw(boards())
    board = make(k, objects, interests)
    for name, value in ((name, value) for name, _, value in objects):
        inside, outside = tried(*board.quiet_range(name), value)
        for other in inside:
            assert not board.affected_interests(board.set_value(name, other))
        board.set_value(name, value)
        for other in outside:
            assert board.affected_interests(board.set_value(name, other))
            board.set_value(name, value)


def test_the_highest_value_first():
    objects = {"id": ["a", "b", "c"], "position": [1.0, 2.0, 9.0], "value": [5.0, 3.0, 4.0]}
    interests = {"id": [1, 2], "position_lo": [0.0, 0.0], "position_hi": [3.0, 10.0]}
    board = Board(1, objects=objects, interests=interests, descending=True)
    assert board.quiet_range("a") == (5.0, 5.0)
    assert board.quiet_range("b") == (-math.inf, 5.0)  # a came first, so it stays
    assert board.quiet_range("c") == (-math.inf, 5.0)
    board.unsubscribe(2)
    assert board.quiet_range("c") == (-math.inf, math.inf)
    low = Board(1, objects=objects, interests=interests)
    assert low.quiet_range("a") == (math.nextafter(3.0, 4.0), math.inf)  # at 3 it would be first
    assert low.quiet_range("c") == (3.0, math.inf)


def test_a_quiet_range_on_a_large_board():
    rng = np.random.default_rng(3)
    n, m, k = 2_000, 3_000, 3
    ends = np.sort(rng.random((m, 2)), axis=1)
    xs, ys = rng.random(n), rng.random(n).round(3)  # ties
    board = Board(
        k,
        objects={"id": np.arange(n), "position": xs, "value": ys},
        interests={"id": np.arange(m), "position_lo": ends[:, 0], "position_hi": ends[:, 1]},
    )
    kth = np.full(m, np.inf)
    last = np.full(m, n)
    order = np.lexsort((np.arange(n), ys))
    for row, (lo, hi) in enumerate(ends):
        inside = order[(lo <= xs[order]) & (xs[order] <= hi)]
        if len(inside) >= k:
            kth[row], last[row] = ys[inside[k - 1]], inside[k - 1]
    quiet = 0
    for one in range(0, n, 7):
        around = (ends[:, 0] <= xs[one]) & (xs[one] <= ends[:, 1])
        keys = [(y, arrival) for y, arrival in zip(kth[around], last[around], strict=True)]
        worst = max(keys, default=(-math.inf, -1))
        if (ys[one], one) <= worst:
            assert board.quiet_range(one) == (ys[one], ys[one])
            continue
        quiet += 1
        lo = worst[0] if one > worst[1] else math.nextafter(worst[0], math.inf)
        assert board.quiet_range(one) == (lo, math.inf)
    assert quiet > 50


def test_what_has_no_quiet_range():
    with pytest.raises(UnknownIdError):
        Board(1).quiet_range("a")
    board = Board(1, space=Space([Number("a")]))
    board.add(1, {"a": 1}, 2.0)
    with pytest.raises(UsageError, match="without a space"):
        board.quiet_range(1)
