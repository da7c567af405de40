"""Long random histories of edits: the answer is that of a set built anew, in every structure."""

import gc
import weakref

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rangecast import liveset as liveset_module
from rangecast.engine import Engine
from rangecast.errors import UsageError
from rangecast.model.attributes.base import Number
from rangecast.model.attributes.patterns import Text
from rangecast.model.boxes import Boxes
from rangecast.model.filters.filter import Filter
from rangecast.model.simplest import simplest
from rangecast.model.space import Space
from rangecast.rank import live as rank_live
from rangecast.rank.scan import Scan
from tests.support.examples import examples
from tests.support.strategies import boxes, intervals, points

INF = np.inf
D = 2


def plane():
    return Space([Number(f"a{j}") for j in range(D)])


def named(point):
    """Return an event as a program has it: a missing value isn't there."""
    return {f"a{j}": value for j, value in enumerate(point.tolist()) if value != INF}


class History(RuleBasedStateMachine):
    """Random edits on an engine and on a plain dict; ranked after each."""

    rank_index = "slabs"

    @initialize()
    def start(self):
        self.engine = Engine(plane(), index="scan", rank_index=self.rank_index)
        self.model = {}  # id -> lo, hi, score, weights, in order of arrival
        self.next = 0

    def add(self, lo, hi, score, weights):
        name = f"s{self.next}"
        self.next += 1
        self.model[name] = lo, hi, score, weights
        return name

    @rule(some=boxes(dimensions=st.just(D), max_rows=9))
    def subscribe_many(self, some):
        weights = np.ones((some.rows, D)) if some.weights is None else some.weights
        names = [
            self.add(
                some.lo[some.owner == row],
                some.hi[some.owner == row],
                float(some.scores[row]),
                weights[row : row + 1],
            )
            for row in range(some.rows)
        ]
        ids = pa.array(names, pa.large_string())
        self.engine.subscribe_many(
            Boxes.of(
                some.lo,
                some.hi,
                owner=some.owner,
                ids=ids,
                scores=some.scores,
                weights=some.weights,
            )
        )

    @rule(data=st.data(), box=st.lists(intervals(), min_size=D, max_size=D))
    def subscribe_or_replace(self, data, box):
        lo, hi = np.array(box).T
        score, weight = data.draw(st.sampled_from([(0.0, 1.0), (2.0, 0.3)]))
        told = Filter.from_boxes(self.engine.space, lo, hi)
        value = lo[None], hi[None], score, np.array([[weight, 1.0]])
        if self.model and data.draw(st.booleans()):
            name = data.draw(st.sampled_from(sorted(self.model)))
            if data.draw(st.booleans()):
                self.engine.replace(name, told, score=score, weights={"a0": weight})
                kept = np.array([[weight, self.model[name][3][0, 1]]])
                self.model[name] = *value[:3], kept
            else:  # score and weights stay
                self.engine.replace(name, told)
                self.model[name] = *value[:2], *self.model[name][2:]
        else:
            name = self.add(*value)
            self.engine.subscribe(name, told, score=score, weights={"a0": weight})

    @rule(data=st.data(), score=st.sampled_from([None, 0.0, 3.0]))
    def rescore(self, data, score):
        if self.model:
            name = data.draw(st.sampled_from(sorted(self.model)))
            lo, hi, old, weights = self.model[name]
            given = data.draw(st.sampled_from([None, {"a1": 0.2}]))
            self.engine.rescore(name, score, weights=given)
            weights = weights.copy()
            if given:
                weights[0, 1] = 0.2
            self.model[name] = lo, hi, old if score is None else score, weights

    @rule(data=st.data())
    def unsubscribe(self, data):
        if self.model:
            name = data.draw(st.sampled_from(sorted(self.model)))
            self.engine.unsubscribe(name)
            del self.model[name]

    @rule()
    def wait(self):
        self.engine.wait_for_rebuild()

    @rule(events=points(D, max_events=4), k=st.integers(1, 5), relaxed=st.booleans())
    def rank(self, events, k, relaxed):
        best = self.engine.rank_points(events, k, relaxed=relaxed)
        if not self.model:
            assert not any(best)
            return
        names = list(self.model)
        lo, hi, scores, weights = zip(*self.model.values(), strict=True)
        anew = Boxes.of(
            np.concatenate(lo),
            np.concatenate(hi),
            owner=np.repeat(np.arange(len(lo)), [len(one) for one in lo]),
            scores=scores,
            weights=np.concatenate(weights),
        )
        anew = simplest(anew, self.engine.space)
        for event, right in enumerate(Scan(anew).rank(events, k, relaxed=relaxed)):
            rows, scores = right.rows.tolist(), right.scores.tolist()
            expected = [(names[row], score) for row, score in zip(rows, scores, strict=True)]
            assert best[event] == expected
            assert self.engine.rank(named(events[event]), k, relaxed=relaxed) == expected

    @invariant()
    def size(self):
        assert len(self.engine) == len(self.model)


@pytest.mark.hypothesis
@pytest.mark.parametrize("name", ["slabs", "sopt", "ir"])
def test_a_live_set_ranks_as_a_set_built_anew(monkeypatch, name):
    monkeypatch.setattr(liveset_module, "RECENT", 3)
    monkeypatch.setattr(liveset_module, "FAN", 2)
    monkeypatch.setattr(liveset_module, "SMALL", 16)
    machine = type("Ranked", (History,), {"rank_index": name})
    machine.TestCase.settings = examples(25, stateful_step_count=25)
    machine.TestCase().runTest()


def test_a_replacement_keeps_its_place_in_ties():
    engine = Engine(plane())
    for name in ("first", "second"):
        engine.subscribe(name, "a0 < 5", score=1)
    engine.replace("first", "a0 < 7", score=1)
    assert engine.rank({"a0": 3}, 2) == [("first", 1.0), ("second", 1.0)]
    engine.rescore("second", 2)
    assert engine.rank({"a0": 3}, 1) == [("second", 2.0)]
    assert engine.rank({"a0": 9}, 1) == []
    assert engine.rank({"a0": 3}, 1, relaxed=True) == [("first", 1.0)]
    with pytest.raises(UsageError, match="a score must be a finite number"):
        engine.rescore("first", INF)


def test_a_set_grows_row_by_row_past_what_it_was_filled_with():
    some = np.zeros((2000, D))
    engine = Engine(plane())
    engine.subscribe_many(Boxes.of(some, some + 1))
    for row in range(40):
        engine.rescore(row, float(row))
    assert engine.rank({"a0": 0.5, "a1": 0.5}, 2) == [(39, 39.0), (38, 38.0)]


@pytest.mark.parametrize("indexed", [0, 1 << 40])
def test_one_attribute_is_ranked_right_while_it_is_edited(monkeypatch, indexed):
    """By lists, in which the dead and the replaced still are.

    The newest rows are indexed, or compared one by one.
    """
    monkeypatch.setattr(rank_live, "_INDEXED", indexed)
    rng = np.random.default_rng(6)
    n = 6_000
    lo = rng.random((n, 1))
    engine = Engine(Space([Number("a0")]))
    engine.subscribe_many(Boxes.of(lo, lo + 0.05 * rng.random((n, 1)), scores=rng.random(n)))
    events = rng.random((300, 1))
    for _ in range(6):
        engine.rank_points(events, 20)
        best = {one for found in engine.rank_points(events[:60], 3) for one, _ in found}
        for one in sorted(best):  # those in front of every list
            edit = rng.integers(0, 3)
            if edit == 0:
                engine.unsubscribe(one)
            elif edit == 1:
                engine.rescore(one, float(rng.random()))
            else:
                engine.replace(one, f"a0 > {rng.random()}")
        boxes = engine.boxes()
        ids = boxes.ids.to_pylist()
        for k in (1, 20):
            found = engine.rank_points(events, k)
            for event, right in enumerate(Scan(boxes).rank(events, k)):
                rows, scores = right.rows.tolist(), right.scores.tolist()
                expected = [(ids[row], score) for row, score in zip(rows, scores, strict=True)]
                assert found[event] == expected
                assert event % 10 or engine.rank(named(events[event]), k) == expected


def test_new_rows_are_indexed_for_a_batch_only_if_they_may_reach_its_top_k():
    n, events = 6_000, np.random.default_rng(0).random((2_000, 1))
    engine = Engine(Space([Number("a0")]))
    engine.subscribe_many(Boxes.of(np.zeros((n, 1)), np.ones((n, 1)), scores=np.ones(n)))
    for first, score, are_indexed in ((n, 0.5, False), (2 * n, 2.0, True)):
        ids, scores = np.arange(first, first + 100).tolist(), np.full(100, score)
        new = Boxes.of(np.zeros((100, 1)), np.ones((100, 1)), ids=ids, scores=scores)
        engine.subscribe_many(new)
        found = engine.rank_points(events, 5)
        assert [value for _, value in found[1_999]] == [max(1.0, score)] * 5
        assert bool(engine._view.ranked[0].recent_parts) == are_indexed


@pytest.mark.parametrize("rank_index", ["auto", "slabs", "scan"])
def test_new_rows_reach_events_that_the_estimate_of_comparisons_does_not_read(rank_index):
    """All events that the estimate reads have their top k among older rows with higher scores."""
    old, new, k = 600, 300, 3
    engine = Engine(plane(), rank_index=rank_index)
    for first, count, lo, score in ((0, old, 0.0, 100.0), (old, new, 4.0, 1.0)):
        ids, bounds = [*range(first, first + count)], np.full((count, D), lo)
        boxes = Boxes.of(bounds, bounds + 1, ids=ids, scores=np.full(count, score))
        engine.subscribe_many(boxes)
    events = np.full((1_000, D), 4.5)
    events[:: rank_live._SAMPLED] = 0.5
    assert new * len(events) > rank_live._INDEXED
    for event, ranking in enumerate(engine.rank_points(events, k)):
        is_read = event % rank_live._SAMPLED == 0
        first, score = (0, 100.0) if is_read else (old, 1.0)
        assert ranking == [(first + at, score) for at in range(k)]


def test_prepared_calls_keep_the_index_that_they_read():
    """Another thread that builds the index of a part at the same time puts its own there."""
    engine = Engine(plane(), rank_index="slabs")
    lo = np.random.default_rng(1).random((1_000, D))
    engine.subscribe_many(Boxes.of(lo, lo + 0.5, scores=np.arange(1_000.0)))
    before = engine.rank({"a0": 0.6, "a1": 0.6}, 5)
    part = engine._view.parts[0]
    index = weakref.ref(part.rankings[None].structure)
    part.rankings.clear()
    gc.collect()
    assert index() is not None
    assert engine.rank({"a0": 0.6, "a1": 0.6}, 5) == before


@pytest.mark.conformance
@pytest.mark.parametrize("dimensions", [1, 2])
def test_prepared_calls_leave_out_a_part_without_rows(dimensions):
    """There, the first row has no arrival: the calls would read beyond the array."""
    engine = Engine(Space([Number(f"a{j}") for j in range(dimensions)]), rank_index="slabs")
    lo = np.zeros((3_000, dimensions))
    engine.subscribe_many(Boxes.of(lo, lo + 1))
    engine.unsubscribe_many(range(3_000))
    engine.wait_for_rebuild()
    event = {f"a{j}": 0.5 for j in range(dimensions)}
    assert (engine._view.count, len(engine._view.parts)) == (0, 1)
    assert engine.rank(event, 5) == engine.rank_many([event], 5)[0] == []
    assert engine._view.ranked[0].single_event[0].calls == ()
    engine.subscribe(1, "a0 < 0.7", score=3)
    engine.subscribe_many(Boxes.of(lo[:600], lo[:600] + 1, ids=np.arange(10, 610)))
    assert engine.rank(event, 2) == engine.rank_many([event], 2)[0] == [(1, 3.0), (10, 0.0)]


def test_threads_that_build_the_index_of_a_part_at_the_same_time_share_it(monkeypatch):
    engine = Engine(plane(), rank_index="slabs")
    engine.subscribe_many(Boxes.of(np.zeros((1_000, D)), np.ones((1_000, D))))
    build, indexes = rank_live.ranked_part, []

    def built_twice(*given):
        """Build an index while another thread builds one, too."""
        if not indexes:
            indexes.append(None)
            engine.rank_points(np.full((2, D), 0.5), 3)
        indexes.append(build(*given))
        return indexes[-1]

    monkeypatch.setattr(rank_live, "ranked_part", built_twice)
    assert len(engine.rank({"a0": 0.5, "a1": 0.5}, 3)) == 3
    part = engine._view.parts[0]
    assert len(indexes) == 3
    assert part.rankings[None] is indexes[1]


@pytest.mark.parametrize("subscriptions", [0, 1, 600])
@pytest.mark.parametrize("k", [0, -1, 1.5, True, "3", None])
@pytest.mark.parametrize("kind", ["slabs", "scan", "text"])
def test_k_is_checked_for_one_event_as_for_many(kind, k, subscriptions):
    attributes = [Number("a0"), Text("title")] if kind == "text" else [Number("a0")]
    rank_index = "scan" if kind == "scan" else "auto"
    engine = Engine(Space(attributes), rank_index=rank_index)
    filters = ["a0 < 5 and title contains 'a'" if kind == "text" else "a0 < 5"] * subscriptions
    engine.subscribe_many({"id": [*range(subscriptions)], "filter": filters})
    event = {"a0": 3} | ({"title": "a"} if kind == "text" else {})
    errors = []
    for call in (lambda: engine.rank(event, k), lambda: engine.rank_many([event], k)):
        with pytest.raises(UsageError) as error:
            call()
        errors.append(str(error.value))
    assert errors[0] == errors[1]


@pytest.mark.parametrize("dimensions", [1, 3])
@pytest.mark.parametrize("edits", [100, 2_000])
def test_an_edited_set_looks_at_hardly_more_than_an_untouched_one(dimensions, edits):
    """The k-th best of the large part is what the rows of the small one must reach."""
    rng = np.random.default_rng(8)
    n = 20_000
    side = (1_000 / n) ** (1 / dimensions)
    lo = rng.random((n, dimensions)) * (1 - side)
    scores = rng.integers(0, 40, n).astype(float)
    boxes = Boxes.of(lo, lo + side, scores=scores)
    events = side + rng.random((1_000, dimensions)) * (1 - 2 * side)
    engines = []
    for count in (0, edits):
        engine = Engine(Space([Number(f"a{axis}") for axis in range(dimensions)]))
        engine.subscribe_many(boxes)
        some = boxes.take(np.arange(count))
        engine.unsubscribe_many(some.ids.to_pylist())
        engine.subscribe_many(some)
        engines.append(engine)
    query = rank_live.Query.of((events, events), dimensions, 10, None, "sum", relaxed=False)
    untouched, edited = (
        rank_live.best_live(engine._view, query, "slabs", engine.space) for engine in engines
    )
    np.testing.assert_array_equal(edited.scores, untouched.scores)
    work, least = edited.work, untouched.work
    assert work.words <= 1.5 * least.words
    assert work.examined + work.tested <= 1.3 * (least.examined + least.tested) + 20 * len(events)


@pytest.mark.parametrize("relaxed", [False, True])
def test_ties_between_parts_go_by_arrival(relaxed):
    """Replaced rows are in a later part, with the arrival of those that they replace."""
    rng = np.random.default_rng(9)
    n = 3_000
    lo = rng.random((n, D))
    scores, weights = rng.integers(0, 3, n).astype(float), rng.integers(1, 3, (n, D)).astype(float)
    boxes = Boxes.of(lo, lo + 0.3, scores=scores, weights=weights)
    engine = Engine(plane())
    engine.subscribe_many(boxes)
    for some in (rng.permutation(n)[:700], rng.permutation(n)[:40]):
        engine.replace_many(boxes.take(np.sort(some)))
    events = rng.random((150, D))
    for k in (1, 10, 2_500):
        found = engine.rank_points(events, k, relaxed=relaxed)
        for event, right in enumerate(Scan(boxes).rank(events, k, relaxed=relaxed)):
            expected = list(zip(right.rows.tolist(), right.scores.tolist(), strict=True))
            assert (
                found[event]
                == expected
                == engine.rank_points(events[[event]], k, relaxed=relaxed)[0]
                == engine.rank(named(events[event]), k, relaxed=relaxed)
            )


def test_rankings_name_events_and_subscriptions():
    engine = Engine(plane())
    engine.subscribe("a", "a0 < 5", score=1)
    engine.subscribe("b", "a0 < 3", score=2)
    found = engine.rank_many([{"id": "x", "a0": 2}, {"id": "y", "a0": 4}, {"id": "z"}], 3)
    assert len(found) == 3
    assert found[0] == [("b", 2.0), ("a", 1.0)]
    assert found.table().to_pylist() == [
        {"event": "x", "rank": 1, "subscription": "b", "score": 2.0},
        {"event": "x", "rank": 2, "subscription": "a", "score": 1.0},
        {"event": "y", "rank": 1, "subscription": "a", "score": 1.0},
    ]
    with pytest.raises(UsageError, match="at least 1"):
        engine.rank({"a0": 1}, 0)
    with pytest.raises(UsageError, match="no index 'slab' for ranking"):
        Engine(plane(), rank_index="slab")
