"""Spans, uncertain events, scores that depend on the event, budgets, many attributes, why."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast.engine import Engine
from rangecast.errors import RejectedRowError, SpaceError, UsageError
from rangecast.model.attributes.base import Number
from rangecast.model.attributes.timestamps import Timestamp
from rangecast.model.boxes import Boxes
from rangecast.model.filters.filter import Filter
from rangecast.model.space import Space
from rangecast.rank import rate_limit as shedding
from rangecast.rank.choose import INDEXES
from rangecast.rank.explain import explain_rank
from rangecast.rank.rate_limit import TIMELESS, WINDOW, RateLimiter, limited, seconds_of
from rangecast.rank.result import Best
from rangecast.rank.scan import Scan
from rangecast.rank.scores.adjusted import best_adjusted, best_uncertain
from rangecast.rank.slabs.index import Slabs
from tests.rank.test_structures import answers, many, oracle
from tests.support.examples import examples
from tests.support.strategies import boxes_and_points

INF = np.inf


def spans_by_hand(boxes, lo, hi, how):
    """Which boxes meet a span, or contain it, on all attributes."""
    if how == "overlap":
        return ((boxes.lo <= hi) & (lo <= boxes.hi)).all(axis=1)
    return ((boxes.lo <= lo) & (hi <= boxes.hi)).all(axis=1)


def ranked(totals, k):
    """The k best of {row: score}."""
    order = sorted(totals.items(), key=lambda item: (-item[1], item[0]))[:k]
    return [row for row, _ in order], [score for _, score in order]


def spans(points, seed=0):
    other = np.random.default_rng(seed).permutation(points)
    return np.minimum(points, other), np.maximum(points, other)


@pytest.mark.parametrize("how", ["overlap", "contain"])
@examples(60)
@given(case=boxes_and_points(), k=st.integers(1, 6))
def test_spans_are_ranked_as_their_meaning_says(how, case, k):
    boxes, points = case
    lo, hi = spans(points)
    best = Slabs(boxes).best_spans(lo, hi, k, how)
    for event, found in enumerate(answers(best)):
        held = np.unique(boxes.owner[spans_by_hand(boxes, lo[event], hi[event], how)])
        assert found == ranked({int(row): float(boxes.scores[row]) for row in held}, k)


@pytest.mark.parametrize("how", ["overlap", "contain"])
def test_spans_on_a_large_set(how):
    boxes, points = many(9000, 3)
    lo, hi = spans(points)
    best = Slabs(boxes).best_spans(lo, hi, 20, how)
    for event, found in enumerate(answers(best)):
        held = np.flatnonzero(spans_by_hand(boxes, lo[event], hi[event], how))
        assert found == ranked({int(row): float(boxes.scores[row]) for row in held}, 20)


@pytest.mark.parametrize("how", ["overlap", "contain"])
def test_many_spans_are_ranked_together_as_each_by_itself(how):
    boxes, points = many(9_000, 3, several=True)
    index = Slabs(boxes)
    lo, hi = spans(points)
    again = np.random.default_rng(1).integers(0, len(points), 700)
    alone = [index.best_spans(lo[e : e + 1], hi[e : e + 1], 20, how).of(0) for e in again]
    found = index.best_spans(lo[again], hi[again], 20, how)
    assert [found.of(i)[0].tolist() for i in range(700)] == [rows.tolist() for rows, _ in alone]


def test_spans_that_make_no_sense_are_rejected():
    slabs = Slabs(Boxes.of([[0.0]], [[1.0]]))
    with pytest.raises(UsageError, match="must not end before it begins"):
        slabs.best_spans(np.array([[2.0]]), np.array([[1.0]]), 1, "overlap")
    relaxed = Slabs(Boxes.of([[0.0]], [[1.0]]), relaxed=True)
    with pytest.raises(UsageError, match="ranked exactly"):
        relaxed.best_spans(np.array([[1.0]]), np.array([[2.0]]), 1, "overlap")


def test_a_live_set_takes_spans():
    engine = Engine(Space([Number("x"), Number("y")]))
    engine.subscribe("wide", "x between 0 and 10", score=1)
    engine.subscribe("narrow", "x between 4 and 6 and y > 0", score=2)
    for _ in range(2):
        span = {"x": (5, 8), "y": 1}
        assert engine.rank(span, 5, span="overlap") == [("narrow", 2.0), ("wide", 1.0)]
        assert engine.rank(span, 5, span="contain") == [("wide", 1.0)]
        assert engine.rank({"x": 5, "y": 1}, 5, span="contain")[0] == ("narrow", 2.0)
        some = np.full((600, 2), 100.0)
        engine.subscribe_many(
            Boxes.of(some, some + 1, ids=[f"{_}-{i}" for i in range(600)])
        )  # now there are parts
    with pytest.raises(RejectedRowError, match="a span is a pair"):
        engine.rank({"x": (1, 2, 3)}, 1, span="overlap")
    with pytest.raises(UsageError, match="ranked exactly"):
        engine.rank({"x": (1, 2)}, 1, span="overlap", relaxed=True)
    with pytest.raises(UsageError, match="span must be"):
        engine.rank({"x": (1, 2)}, 1, span="touch")


@pytest.mark.parametrize("seed", range(4))
def test_scores_that_depend_on_the_event(seed):
    boxes, points = many(4000, 2, seed=seed)
    rng = np.random.default_rng(seed)
    factors = rng.uniform(0.5, 2.0, (len(points), boxes.rows))
    slabs = Slabs(boxes)
    best = best_adjusted(
        lambda events, k: slabs.best(points[events], k),
        len(points),
        7,
        lambda event, rows: factors[event, rows],
        (0.5, 2.0),
    )
    for event, found in enumerate(answers(best)):
        held = ((boxes.lo <= points[event]) & (points[event] <= boxes.hi)).all(axis=1)
        totals = {
            int(row): float(boxes.scores[row] * factors[event, row]) for row in np.flatnonzero(held)
        }
        assert found == ranked(totals, 7)


def test_not_everything_is_ranked_to_adjust_the_scores():
    n = 50_000
    boxes = Boxes.of(np.zeros((n, 1)), np.ones((n, 1)), scores=np.arange(n, 0, -1))
    slabs, asked = Slabs(boxes), []

    def search(events, k):
        asked.append(k)
        return slabs.best(np.full((len(events), 1), 0.5), k)

    best = best_adjusted(search, 3, 5, lambda event, rows: np.full(len(rows), 0.999), (0.99, 1.0))
    assert best.rows[:, 0].tolist() == [0, 0, 0]
    assert max(asked) < n / 20
    with pytest.raises(UsageError, match=r"bounds, 0.99 and 1.0; given: 2.0"):
        best_adjusted(search, 1, 5, lambda event, rows: 2.0, (0.99, 1.0))
    with pytest.raises(UsageError, match="between 0 and a finite number"):
        best_adjusted(search, 1, 5, lambda event, rows: 1.0, (2.0, 1.0))
    with pytest.raises(UsageError, match="one for each of 10"):
        best_adjusted(search, 1, 5, lambda event, rows: [1.0, 1.0], (0.0, 1.0))
    with pytest.raises(UsageError, match="at least 1"):
        best_adjusted(search, 1, -1, lambda event, rows: 1.0, (0.0, 1.0))


@examples(40)
@given(case=boxes_and_points(), k=st.integers(1, 5), seed=st.integers(0, 9))
def test_uncertain_events_are_ranked_by_what_they_surely_hold(case, k, seed):
    boxes, points = case
    boxes = replace(boxes, scores=boxes.scores - 1.5 * (seed % 2))  # some of them negative
    lo, hi = spans(points)
    sure = np.random.default_rng(seed).choice([0.0, 0.25, 0.5, 1.0], points.shape)
    slabs = Slabs(boxes)
    best = best_uncertain(
        lambda events, ask: slabs.best_spans(lo[events], hi[events], ask, "contain"),
        boxes.take,
        (lo, hi, sure),
        k,
    )
    for event, found in enumerate(answers(best)):
        probabilities = {}
        for box in np.flatnonzero(spans_by_hand(boxes, lo[event], hi[event], "contain")).tolist():
            row = int(boxes.owner[box])
            probability = float(np.prod(sure[event][boxes.mentions[box]]))
            probabilities[row] = max(probabilities.get(row, 0.0), probability)
        totals = {
            row: float(boxes.scores[row]) * probability
            for row, probability in probabilities.items()
        }
        assert found == ranked(totals, k)


def test_a_negative_score_ranks_higher_the_less_probable_the_match_is():
    engine = Engine(Space([Number("x"), Number("y")]))
    engine.subscribe("loss", "x < 9", score=-2)
    engine.subscribe("sure loss", "y < 9", score=-1)
    for probability, right in [(1.0, -2.0), (0.75, -1.5), (0.25, -0.5), (0.0, 0.0)]:
        found = engine.rank({"x": (1, 2), "y": 3}, 2, probabilities={"x": probability})
        assert sorted(found, key=lambda one: one[0] != "loss") == [
            ("loss", right),
            ("sure loss", -1),
        ]
        assert found[0][0] == ("loss" if right > -1 else "sure loss")
        assert not any(np.signbit(score) and score == 0 for _, score in found)


def test_probabilities_are_checked():
    one = np.array([[0.5]])
    for wrong in (3 * one, np.full((1, 1), np.nan), np.ones((1, 2))):
        with pytest.raises(UsageError, match="between 0 and 1"):
            best_uncertain(None, None, (one, one, wrong), 1)


def edited_engine(seed, count=400, rank_index="auto"):
    """An engine with a history, and what it holds: {id: (lo, hi, score)} in order of arrival."""
    rng = np.random.default_rng(seed)
    engine = Engine(Space([Number("x"), Number("y")]), rank_index=rank_index)
    model = {}

    def drawn():
        lo = rng.integers(0, 20, 2).astype(float)
        hi = lo + rng.integers(0, 15, 2)
        free = rng.random(2) < 0.3
        lo[free], hi[free] = -INF, INF
        return lo, hi, float(rng.integers(-2, 6))

    def filter_of(lo, hi):
        return Filter.from_boxes(engine.space, lo, hi)

    for row in range(count):
        lo, hi, score = drawn()
        engine.subscribe(f"s{row}", filter_of(lo, hi), score=score)
        model[f"s{row}"] = lo, hi, score
    for _ in range(count):
        name, what = str(rng.choice(list(model))), rng.random()
        if what < 0.4:
            engine.unsubscribe(name)
            del model[name]
        elif what < 0.7:
            lo, hi, score = drawn()
            engine.replace(name, filter_of(lo, hi), score=score)
            model[name] = lo, hi, score
        else:
            engine.rescore(name, 1.0)
            model[name] = *model[name][:2], 1.0
    return engine, model


def by_hand(model, products, k):
    """The k best of {id: score} by score, then in order of arrival."""
    place = {name: at for at, name in enumerate(model)}
    return sorted(products.items(), key=lambda item: (-item[1], place[item[0]]))[:k]


@pytest.fixture
def small_parts(monkeypatch):
    """Parts, joins and rebuilds after a handful of edits instead of thousands."""
    for name, value in (("RECENT", 30), ("FAN", 2), ("SMALL", 100)):
        monkeypatch.setattr(f"rangecast.liveset.{name}", value)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("seed", range(3))
def test_a_live_set_ranks_uncertain_events(seed):
    engine, model = edited_engine(seed)
    rng = np.random.default_rng(seed)
    for _ in range(25):
        x, y = rng.integers(0, 25, 2).tolist()
        x_end = x + int(rng.integers(0, 4))
        probabilities = {"x": float(rng.choice([0.25, 0.5, 1.0]))}
        if rng.random() < 0.5:
            probabilities["y"] = 0.5
        totals = {}
        for name, (lo, hi, score) in model.items():
            if lo[0] <= x and x_end <= hi[0] and lo[1] <= y <= hi[1]:
                product = 1.0
                for axis, at in enumerate("xy"):
                    product *= probabilities.get(at, 1.0) if lo[axis] > -INF else 1.0
                totals[name] = score * product
        for k in (1, 7, 500):
            found = engine.rank({"x": (x, x_end), "y": y}, k, probabilities=probabilities)
            assert found == by_hand(model, totals, k)
    engine.wait_for_rebuild()
    assert engine.rebuild_count


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("rank_index", ["auto", "sopt"])
@pytest.mark.parametrize("relaxed", [False, True], ids=["exact", "relaxed"])
def test_a_live_set_ranks_by_a_factor(relaxed, rank_index):
    engine, model = edited_engine(5, 250, rank_index)
    rng = np.random.default_rng(5)
    factors = dict(zip(model, rng.choice([0.5, 1.0, 1.5], len(model)), strict=True))
    for _ in range(15):
        point = rng.integers(0, 25, 2).astype(float)
        totals = {}
        for name, (lo, hi, score) in model.items():
            holds = (lo <= point) & (point <= hi)
            if relaxed:
                holds &= lo > -INF
                score = float(holds.sum())
            if holds.any() if relaxed else holds.all():
                totals[name] = score * factors[name]
        for k in (1, 7, 500):
            found = engine.rank(
                {"x": point[0], "y": point[1]},
                k,
                score_factors=lambda _, ids: [factors[one] for one in ids],
                factor_bounds=(0.5, 1.5),
                relaxed=relaxed,
            )
            assert found == by_hand(model, totals, k)


def test_a_factor_takes_spans_and_looks_at_few():
    engine = Engine(Space([Number("x")]))
    n = 20_000
    engine.subscribe_many(Boxes.of(np.zeros((n, 1)), np.ones((n, 1)), scores=np.arange(n, 0, -1)))
    asked = []

    def factor(event, ids):
        asked.append(len(ids))
        return [0.9 if one == 0 else 1.0 for one in ids]

    found = engine.rank(
        {"x": (0, 0.5)}, 2, score_factors=factor, factor_bounds=(0.9, 1), span="contain"
    )
    assert found == [(1, n - 1.0), (2, n - 2.0)]
    assert max(asked) < n / 100
    assert engine.rank({"x": (0, 1.5)}, 2, score_factors=factor, span="contain") == []


def test_mistakes_about_chances_and_factors_are_told():
    engine = Engine(Space([Number("x"), Number("y")]))
    engine.subscribe("a", "x < 5", score=1)
    for probability in (3.0, -0.1, float("nan")):
        with pytest.raises(UsageError, match="between 0 and 1; given for 'x'"):
            engine.rank({"x": 1}, 1, probabilities={"x": probability})
    with pytest.raises(UsageError, match="'y' has a probability, but the event has no value"):
        engine.rank({"x": 1}, 1, probabilities={"y": 0.5})
    with pytest.raises(SpaceError, match="no attribute 'z'"):
        engine.rank({"x": 1}, 1, probabilities={"z": 0.5})
    with pytest.raises(UsageError, match="at least 1"):
        engine.rank({"x": 1}, 0, probabilities={"x": 0.5})
    with pytest.raises(UsageError, match=r"bounds, 0.0 and 1.0; given: 2.0"):
        engine.rank({"x": 1}, 1, score_factors=lambda _, ids: 2.0)


@pytest.mark.parametrize("name", ["slabs", "sopt", "segment", "ir"])
def test_hundreds_of_attributes(name):
    rng = np.random.default_rng(0)
    n, d, said = 3000, 300, 5
    lo, hi = np.full((n, d), -INF), np.full((n, d), INF)
    axes = rng.random((n, d)).argsort(axis=1)[:, :said]
    begin = rng.random((n, said))
    np.put_along_axis(lo, axes, begin, axis=1)
    np.put_along_axis(hi, axes, begin + 0.3, axis=1)
    boxes = Boxes.of(lo, hi, weights=rng.integers(1, 5, (n, d)) / 4)
    points = rng.random((12, d))
    index = INDEXES[name](boxes, relaxed=True)
    best = index.best(points, 10)
    assert answers(best) == oracle(boxes, points, 10, relaxed=True)
    assert index.memory < n * 2000
    if name != "slabs":
        all_held = sum(((boxes.lo <= p) & (p <= boxes.hi) & boxes.mentions).sum() for p in points)
        assert best.work.calls < all_held


def limited_by_hand(best, windows, budget):
    event, rank, _, scores = best.pairs()
    kept = []
    for window in set(windows[event].tolist()):
        mine = np.flatnonzero(windows[event] == window)
        order = sorted(mine.tolist(), key=lambda i: (-scores[i], event[i], rank[i]))
        kept += order[:budget]
    return np.bincount(event[sorted(kept)], minlength=len(best.counts)).tolist()


@examples(60)
@given(data=st.data(), budget=st.integers(1, 12))
def test_a_budget_per_second_keeps_the_best_of_each(data, budget):
    counts = np.array(data.draw(st.lists(st.integers(0, 4), max_size=12)), dtype=np.int64)
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    scores = -np.sort(-rng.integers(0, 5, (len(counts), 4)).astype(float), axis=1)
    best = Best(np.zeros((len(counts), 4), np.int32), scores, counts)
    windows = rng.integers(0, 3, len(counts))
    left = limited(best, windows, budget)
    assert left.counts.tolist() == limited_by_hand(best, windows, budget)
    size = data.draw(st.integers(1, 9))
    for ordered in (False, True):
        told = np.sort(windows) if ordered else windows
        left = limited(best, told, budget)
        assert left.counts.tolist() == limited_by_hand(best, told, budget)
        notices = table_of(best, told)
        cutting = RateLimiter(budget, in_order=ordered)
        pieces = [notices.slice(at, size) for at in range(0, len(notices), size)]
        found = [*map(cutting.add, pieces), *cutting.end()]
        kept = [one for table in found for one in table["event"].to_pylist()]
        assert kept == left.pairs()[0].tolist()
        if ordered:
            assert cutting.max_held <= 2 * min(budget, 4 * len(counts)) + size


def table_of(best, windows):
    event, _, _, scores = best.pairs()
    return pa.table({"event": event, "score": scores, WINDOW: windows[event]})


def test_only_a_second_s_answers_are_held_if_events_are_in_order():
    seconds, each = 500, 8
    windows = np.repeat(np.arange(seconds), each)
    best = Best(
        np.zeros((len(windows), 1), np.int32),
        np.random.default_rng(0).random((len(windows), 1)),
        np.ones(len(windows), np.int64),
    )
    notices = table_of(best, windows)
    held = {}
    for ordered in (True, False):
        cutting = RateLimiter(5, in_order=ordered)
        early = sum(len(cutting.add(notices.slice(at, 3))) for at in range(0, len(notices), 3))
        (rest,) = cutting.end()
        assert early + len(rest) == 5 * seconds
        assert len(rest) == (5 if ordered else 5 * seconds)
        held[ordered] = cutting.max_held
    with pytest.raises(UsageError, match="pass in_order=False"):
        RateLimiter(5, in_order=True).add(notices.take(np.arange(len(notices))[::-1]))
    assert held[True] <= 2 * 5 + 3
    assert 5 * seconds <= held[False] <= 8 * seconds


def test_a_long_second_is_not_looked_at_again_for_every_piece(monkeypatch):
    looked_at = []
    real = shedding.staying
    monkeypatch.setattr(
        shedding, "staying", lambda w, s, b: looked_at.append(len(w)) or real(w, s, b)
    )
    n = 4_000
    notices = pa.table({"event": np.arange(n), "score": np.zeros(n), WINDOW: np.zeros(n, int)})
    cutting = RateLimiter(n, in_order=True)
    for at in range(0, n, 10):
        cutting.add(notices.slice(at, 10))
    assert [len(rest) for rest in cutting.end()] == [n]
    assert sum(looked_at) < 4 * n


def test_limits_of_a_live_set():
    engine = Engine(Space([Timestamp("at"), Number("x")]))
    for name, score in (("a", 3), ("b", 2), ("c", 1)):
        engine.subscribe(name, "x > 0", score=score)
    events = [{"at": f"2026-01-01T00:00:0{s}", "x": 1} for s in (1, 1, 2)]
    assert engine.rank_many(events, 2).best.counts.tolist() == [2, 2, 2]
    found = engine.rank_many(events, 9, max_per_second=3, time_attribute="at")
    assert list(found) == [
        [("a", 3.0), ("b", 2.0)],
        [("a", 3.0)],
        [("a", 3.0), ("b", 2.0), ("c", 1.0)],
    ]
    with pytest.raises(UsageError, match="at least 1 notification"):
        limited(found.best, np.zeros(3, np.int64), 0)
    assert seconds_of(np.array([1.5e6, -1.0, INF])).tolist() == [1, -1, TIMELESS]


def test_why_a_rank():
    boxes = Boxes.of(
        np.zeros((5, 2)), [[9, 9], [9, 9], [9, 9], [1, 1], [1, 9]], scores=[1, 3, 3, 9, 5]
    )
    point = np.array([5.0, 5.0])
    assert explain_rank(boxes, 1, point).verdict == "1st: score 3; no better one matches this event"
    assert explain_rank(boxes, 2, point).verdict == (
        "2nd: score 3; 1 better one matches this event, 1 of them with the same score but earlier"
    )
    assert explain_rank(boxes, 0, point).verdict == ("3rd: score 1; 2 better ones match this event")
    assert explain_rank(boxes, 3, point).verdict == "not ranked: it doesn't match this event"
    relaxed = explain_rank(boxes, 4, point, relaxed=True)
    assert (relaxed.rank, relaxed.score, relaxed.better, relaxed.level) == (4, 1.0, 3, 0)
    assert "none of its conditions" in explain_rank(boxes, 3, point, relaxed=True).verdict
    eleven = Boxes.of(np.zeros((11, 1)), np.ones((11, 1)))
    assert explain_rank(eleven, 10, np.array([0.5])).verdict.startswith("11th: ")
    assert Scan(boxes).exact(point, 1).rows.tolist() == [1]
