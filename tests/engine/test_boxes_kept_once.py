"""Sets whose index has their boxes: they aren't stored again, and all that reads them agrees."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rangecast import Engine, Number, Point, Space, Text
from rangecast.device.boxes import terms_of_rows
from rangecast.kernels.arrays import F64
from rangecast.model.boxes import Boxes
from rangecast.model.sets.rowstore import append, bounds_of, no_rows

SPACE = Space(Number(name) for name in "abc")
ROWS = 700


def sides(count: int, seed: int) -> tuple[F64, F64]:
    """Return boxes of which some mention nothing, and some one value."""
    rng = np.random.default_rng(seed)
    lo = rng.integers(0, 30, (count, 3)).astype(float)
    hi = lo + rng.integers(0, 9, lo.shape)
    free = rng.random(lo.shape) < rng.choice([0.0, 0.5, 0.95], (count, 1))
    lo[free], hi[free] = -np.inf, np.inf
    return lo, hi


def engine_of(lo: F64, hi: F64, **options: Any) -> Engine:
    engine = Engine(SPACE, **options)
    engine.subscribe_many(Boxes.of(lo, hi, space=SPACE))
    return engine


def check(engine: Engine, plain: dict[int, tuple[F64, F64]]) -> None:
    """Compare everything that reads boxes with a dict of them."""
    boxes = engine.boxes()
    ids = boxes.ids.to_pylist()
    assert sorted(ids) == sorted(plain)
    for row, id_ in enumerate(ids):
        assert (boxes.lo[row] == plain[id_][0]).all()
        assert (boxes.hi[row] == plain[id_][1]).all()
    for id_ in ids[::90]:
        one, _ = engine.select([id_])
        assert (one.lo[0] == plain[id_][0]).all()
        assert (one.hi[0] == plain[id_][1]).all()
        again = Engine(SPACE)
        again.subscribe(id_, engine[id_].filter)
        assert (again.boxes().lo == one.lo).all()
        assert (again.boxes().hi == one.hi).all()
    points = np.random.default_rng(1).integers(0, 40, (40, 3)).astype(float)
    lo, hi = (np.array([plain[id_][side] for id_ in ids]) for side in (0, 1))
    held = ((lo <= points[:, None]) & (points[:, None] <= hi)).all(axis=2)
    expected = [sorted(np.array(ids)[row].tolist()) for row in held]
    assert [sorted(found) for found in engine.match_points(points)] == expected
    assert engine.count_points(points).tolist() == [len(found) for found in expected]


@pytest.mark.parametrize("seed", range(3))
def test_boxes_of_an_index_are_those_of_the_set(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    lo, hi = sides(ROWS, seed)
    engine = engine_of(lo, hi, index="slabs")
    assert engine._view.rows.sourced == ROWS
    assert engine._view.rows.bounds.arrays.lo.size == 0
    plain = {row: (lo[row], hi[row]) for row in range(ROWS)}
    check(engine, plain)
    more_lo, more_hi = sides(3 * ROWS, seed + 10)
    for step in range(3 * ROWS):
        known = dice.choice(list(plain))
        match dice.randrange(4):
            case 0:
                engine.unsubscribe(known)
                del plain[known]
            case 1:
                engine.rescore(known, step / 7)
            case _:
                id_ = known if dice.random() < 0.5 else ROWS + step
                one = more_lo[step : step + 1], more_hi[step : step + 1]
                engine.upsert_many(Boxes.of(*one, ids=[id_], space=SPACE))
                plain[id_] = one[0][0], one[1][0]
        if step % 500 == 250:
            check(engine, plain)
        if step % 600 == 599:
            engine.wait_for_rebuild()
    engine.wait_for_rebuild()
    assert engine.rebuild_count
    check(engine, plain)
    check(pickle.loads(pickle.dumps(engine)), plain)
    engine.save(tmp_path / "set")
    check(Engine.open(tmp_path / "set", index="slabs"), plain)
    some = sorted(plain)[::3]
    engine.unsubscribe_many(some)
    check(engine, {id_: plain[id_] for id_ in plain if id_ not in some})


def test_rows_of_several_boxes_keep_them() -> None:
    lo, hi = sides(ROWS, 5)
    engine = Engine(SPACE, index="slabs")
    engine.subscribe_many(Boxes.of(lo, hi, owner=np.arange(ROWS) // 2, space=SPACE))
    assert not engine._view.rows.sourced
    other = Engine(SPACE, index="rtree")
    other.subscribe_many(Boxes.of(lo, hi, owner=np.arange(ROWS) // 2, space=SPACE))
    assert engine.boxes().lo.tolist() == other.boxes().lo.tolist()
    assert engine.boxes().hi.tolist() == other.boxes().hi.tolist()


def test_a_device_gets_the_boxes_of_an_index() -> None:
    lo, hi = sides(ROWS, 7)
    engine = engine_of(lo, hi, index="slabs")
    engine.subscribe_many(Boxes.of(*sides(90, 8), ids=range(ROWS, ROWS + 90), space=SPACE))
    rows, boxes = engine._view.rows, engine.boxes()
    own = append(no_rows(), 0, boxes, np.arange(boxes.rows))
    for wanted in (np.arange(ROWS + 90), np.arange(3, ROWS + 50, 7), np.arange(ROWS, ROWS + 9)):
        for mine, expected in zip(
            terms_of_rows(rows, wanted), terms_of_rows(own, wanted), strict=True
        ):
            assert mine.dtype == expected.dtype
            assert mine.tolist() == expected.tolist()
        dense = bounds_of(rows, wanted[::-1].copy(), 3), bounds_of(own, wanted[::-1].copy(), 3)
        for mine, expected in zip(*dense, strict=True):
            assert mine.tolist() == expected.tolist()


def test_a_set_takes_at_most_half_more_than_its_index() -> None:
    rng = np.random.default_rng(3)
    lo = rng.random((20_000, 4))
    engine = Engine(Space(Number(name) for name in "abcd"), index="slabs")
    engine.subscribe_many(Boxes.of(lo, lo + 0.1))
    assert engine.memory <= 1.5 * engine._view.parts[0].index.memory


WORDS = ("red", "blue", "old", "bike")
CIRCLES = {1: "within(place, circle(1, 1, 2))", 9: "within(place, circle(9, 9, 2))"}


class Mixed:
    """Subscriptions of which some read a text or a place, and an oracle of their matches."""

    def __init__(self, space: Space, seed: int):
        self.dice = random.Random(seed)
        self.engine = Engine(space, index="slabs")
        self.plain: dict[int, tuple[int, str, int]] = {}
        """By id: the least value, the word and the circle's centre, if any."""

    def put(self, id_: int, *, verified: bool) -> None:
        """Add or replace a subscription."""
        least = self.dice.randrange(40)
        word, centre = "", 0
        if verified:
            word, centre = self.dice.choice([("red", 0), ("", 1), ("", 9), ("bike", 9)])
        parts = [f"a >= {least}", *([f"title contains '{word}'"] if word else [])]
        self.engine.upsert(id_, " and ".join([*parts, *([CIRCLES[centre]] if centre else [])]))
        self.plain[id_] = least, word, centre

    def check(self) -> None:
        """Compare all that answers events with the oracle."""
        events: list[dict[str, Any]] = [{"a": 45}, {"a": 20, "title": "red"}, {"title": "bike"}]
        for _ in range(12):
            title = " ".join(self.dice.sample(WORDS, 2))
            x, y = self.dice.choice([(1, 1), (9, 8), (5, 5)])
            events.append({"a": self.dice.randrange(45), "title": title, "x": x, "y": y})
        expected = [
            sorted(id_ for id_, mine in self.plain.items() if _holds(mine, event))
            for event in events
        ]
        engine = self.engine
        assert [sorted(engine.match(event)) for event in events] == expected
        assert [sorted(engine.match_ids(event).tolist()) for event in events] == expected
        assert [sorted(found) for found in engine.match_each(events)] == expected
        assert [sorted(found) for found in engine.match_many(events)] == expected
        assert engine.count_many(events).tolist() == [len(ids) for ids in expected]
        for event, ids in zip(events, expected, strict=True):
            assert sorted(id_ for id_, _ in engine.rank(event, len(self.plain))) == ids


def _holds(mine: tuple[int, str, int], event: dict[str, Any]) -> bool:
    least, word, centre = mine
    x, y = event.get("x", 99), event.get("y", 99)
    is_near = not centre or (x - centre) ** 2 + (y - centre) ** 2 <= 4
    return event.get("a", -1) >= least and word in event.get("title", "") and is_near


@pytest.mark.parametrize("seed", range(3))
def test_rows_without_verified_conditions_need_no_boxes(seed: int, tmp_path: Path) -> None:
    space = Space([Number("a"), Text("title"), Point("place")])
    sets = [Mixed(space, seed), Mixed(space, seed + 10)]
    for one in sets:
        lo, hi = np.full((ROWS, len(space)), -np.inf), np.full((ROWS, len(space)), np.inf)
        least = [one.dice.randrange(40) for _ in range(ROWS)]
        lo[:, 0], hi[:, 0] = least, np.finfo(float).max
        one.engine.subscribe_many(Boxes.of(lo, hi, space=space))
        one.plain = {id_: (value, "", 0) for id_, value in enumerate(least)}
        assert one.engine._view.rows.sourced == ROWS
        one.check()
    first, second = sets
    second.put(3, verified=True)  # now the space has conditions, but not the first set
    for one in sets:
        one.check()
    for step in range(ROWS, 6 * ROWS):
        id_ = first.dice.randrange(step)
        if first.dice.random() < 0.2:
            first.engine.rescore(id_ if id_ in first.plain else max(first.plain), step / 7)
        else:
            first.put(id_, verified=step % 3 == 0)
        if step % ROWS == 0:
            first.check()
            second.check()
    first.engine.wait_for_rebuild()
    assert first.engine.rebuild_count
    assert not first.engine._view.rows.sourced  # some rows have conditions: boxes are kept
    first.check()
    for id_, (_, word, centre) in [*first.plain.items()]:
        if word or centre:
            first.put(id_, verified=False)
    first.engine.wait_for_rebuild()
    first.check()
    engine, plain = first.engine, first.plain
    engine.save(tmp_path / "set")
    for copy in (pickle.loads(pickle.dumps(engine)), Engine.open(tmp_path / "set", index="slabs")):
        first.engine, first.plain = copy, plain.copy()
        assert copy._view.rows.sourced == len(plain)
        first.check()
        first.put(1, verified=True)
        first.check()


def test_a_device_gets_no_conditions_that_are_verified() -> None:
    space = Space([Number("a"), Text("title")])
    mixed = Mixed(space, 1)
    lo, hi = np.full((ROWS, len(space)), -np.inf), np.full((ROWS, len(space)), np.inf)
    lo[:, 0] = hi[:, 0] = np.arange(ROWS)
    mixed.engine.subscribe_many(Boxes.of(lo, hi, space=space))
    assert mixed.engine._view.rows.sourced == ROWS
    mixed.engine.subscribe(ROWS, "a >= 3 and title contains 'red'")
    rows, free = np.arange(ROWS + 1), frozenset([space.axis("title")])
    terms = terms_of_rows(mixed.engine._view.rows, rows, free)
    assert space.axis("title") not in terms.axis.tolist()
    assert terms.counts.sum() == len(terms.lo)
