import os
import pickle
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from rangecast import Engine, Number, Space, Text
from rangecast.cover import covered_by, plain
from rangecast.cover import warmup as cover_starting
from rangecast.cover.plain import covered_plainly
from rangecast.kernels import ahead
from rangecast.match.answerer import MatchAnswerer
from rangecast.match.scan import Scan
from rangecast.match.terms.index import Selected
from rangecast.match.warmup import WarmupIndex, begin
from rangecast.model.boxes import Boxes
from rangecast.rank import warmup as rank_starting
from rangecast.rank.answerer import RankAnswerer, RankQuery
from rangecast.rank.liveness import Liveness
from rangecast.rank.scan import Scan as RankScan
from tests.support import strategies
from tests.support.adversarial import cases
from tests.support.conformance import as_sets, check_matcher
from tests.support.cover_oracle import earliest_uncovered
from tests.support.examples import examples


def some(n=300, d=3, seed=0):
    rng = np.random.default_rng(seed)
    lo = rng.random((n, d))
    return Boxes.of(lo, lo + 0.2), rng.random((50, d))


@pytest.fixture
def compiler(monkeypatch):
    """A process that compiles for as long as `running` says, and what was waited for."""

    class Compiler:
        running = True
        waited = 0

        def must_wait(self, *_):
            return self.running

        def wait(self, _):
            self.waited += 1

    made = Compiler()
    monkeypatch.setattr(ahead, "must_wait", made.must_wait)
    monkeypatch.setattr(ahead, "wait", made.wait)
    return made


def test_the_scan_answers_until_kernels_are_compiled(compiler):
    boxes, points = some()
    index, choice = begin(boxes)
    assert (index.name, choice.name) == ("warmup", "scan")
    expected = as_sets(Scan(boxes).match(points))
    assert as_sets(index.match(points)) == expected
    assert index.interim.built is None
    compiler.running = False
    assert as_sets(index.match(points)) == expected
    assert index.interim.built.name == "slabs"
    assert index.memory > index.interim.built.memory


@given(strategies.boxes_and_points())
def test_it_matches_as_every_structure_does(case):
    check_matcher(WarmupIndex, *case)


def test_beyond_some_seconds_of_comparing_it_waits(compiler, monkeypatch):
    boxes, points = some()
    monkeypatch.setattr(ahead, "_MAX_COMPARISONS", 60 * boxes.lo.size)
    index = WarmupIndex(boxes)
    index.match(points)
    assert (index.interim.built, compiler.waited) == (None, 0)
    found = [set(index.match_one(point).tolist()) for point in points]
    assert (index.interim.built.name, compiler.waited) == ("slabs", 1)
    assert found == as_sets(Scan(boxes).match(points))


def test_who_names_a_structure_or_has_a_large_set_gets_it(compiler, monkeypatch):
    boxes, _ = some()
    assert begin(boxes, "cells")[0].name == "cells"
    assert MatchAnswerer.of(boxes).index.name == "slabs"
    assert MatchAnswerer.of(boxes, at_once=True).index.name == "warmup"
    monkeypatch.setattr(ahead, "_MAX_BOUNDS", 10)
    assert begin(boxes)[0].name == "slabs"


def test_texts_are_found_by_ranges_until_terms_can_select(compiler):
    """The ranges may be scanned; conditions on texts are verified as always."""
    engine = Engine(Space([Text("title"), Number("price")]))
    filters = [f"title contains 'x{n:03}' and price > {n % 9}" for n in range(700)]
    engine.subscribe_many({"id": list(range(700)), "filter": filters})
    events = [{"title": f"an x{n:03} x{n + 1:03}", "price": 5} for n in range(50)]
    expected = [[m for m in (n, n + 1) if m % 9 < 5] for n in range(50)]
    (part,) = engine._view.parts
    assert part.index.name == "warmup"

    def check() -> None:
        assert [sorted(found) for found in engine.match_many(events)] == expected
        assert [sorted(engine.match(event)) for event in events] == expected

    check()
    assert part.index.interim.built is None
    engine.unsubscribe(3)
    engine.subscribe(3, filters[3])
    check()
    assert pickle.loads(pickle.dumps(part.index)).name == "warmup"
    compiler.running = False
    check()
    assert isinstance(part.index.interim.built, Selected)
    assert compiler.waited > 0


# ---- ranking


def scored(boxes, seed=0, ties=5):
    """The same boxes with scores, few distinct ones, and weights."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, ties, boxes.rows).astype(float)
    weights = rng.integers(0, 3, (boxes.rows, boxes.dimensions)).astype(float)
    return replace(boxes, scores=scores, weights=weights)


def ranked(best):
    found = (best.of(event) for event in range(len(best.counts)))
    return [(rows.tolist(), scores.tolist()) for rows, scores in found]


def one_by_one(scan, points, k):
    found = scan.rank(points, k, relaxed=scan.is_relaxed)
    return [(one.rows.tolist(), one.scores.tolist()) for one in found]


@examples(40)
@pytest.mark.parametrize("combine", [None, "sum", "min", "max", "product"])
@given(case=strategies.boxes_and_points())
def test_the_scan_ranks_many_events_as_it_does_one(case, combine):
    boxes, points = case
    scan = RankScan(scored(boxes), relaxed=combine is not None, combine=combine or "sum")
    for k in (1, 3, boxes.rows + 1):
        assert ranked(scan.best(points, k)) == one_by_one(scan, points, k)


@pytest.mark.parametrize("relaxed", [False, True])
@pytest.mark.parametrize("name", cases())
def test_the_scan_ranks_adversarial_sets_as_it_does_one_by_one(name, relaxed):
    boxes, points = cases()[name]
    scan = RankScan(boxes, relaxed=relaxed)
    assert ranked(scan.best(points, 5)) == one_by_one(scan, points, 5)


def test_the_dead_take_no_place_in_a_scan_of_many_events():
    boxes, points = some()
    died = np.where(np.arange(boxes.rows) % 3, 9, 4)
    best = RankScan(scored(boxes)).best(points, 4, liveness=Liveness(np.empty(0, int), died, 5))
    alive = np.flatnonzero(died > 5)
    expected = one_by_one(RankScan(scored(boxes).take(alive)), points, 4)
    assert ranked(best) == [(alive[rows].tolist(), scores) for rows, scores in expected]


@pytest.mark.parametrize("relaxed", [False, True])
def test_the_scan_ranks_until_kernels_are_compiled(compiler, relaxed):
    boxes, points = some()
    boxes = scored(boxes)
    index, choice = rank_starting.begin(boxes, relaxed=relaxed)
    assert (index.name, choice.name) == ("warmup", "scan")
    assert "until the kernels" in choice.why
    expected = one_by_one(RankScan(boxes, relaxed=relaxed), points, 7)
    assert ranked(index.best(points, 7)) == expected
    assert ranked(pickle.loads(pickle.dumps(index)).best(points, 7)) == expected
    assert index.interim.built is None
    compiler.running = False
    assert ranked(index.best(points, 7)) == expected
    assert index.interim.built.name == "slabs"
    assert index.memory > index.interim.built.memory


def test_who_ranks_with_a_named_structure_or_spans_waits_for_kernels(compiler, monkeypatch):
    boxes, points = some()
    assert rank_starting.begin(boxes, "slabs")[0].name == "slabs"
    assert RankAnswerer.of(boxes).index.name == "slabs"
    assert RankAnswerer.of(boxes, at_once=True).index.name == "warmup"
    spans = RankQuery(span="overlap")
    assert RankAnswerer.of(boxes, query=spans, at_once=True).index.name == "slabs"
    index = rank_starting.begin(boxes)[0]
    found = index.best_spans(points, points, 3, "overlap")
    assert (index.interim.built.name, compiler.waited) == ("slabs", 1)
    assert ranked(found) == one_by_one(RankScan(boxes), points, 3)
    monkeypatch.setattr(ahead, "_MAX_BOUNDS", 10)
    assert rank_starting.begin(boxes)[0].name == "slabs"


def test_a_live_set_says_what_ranks_it(compiler):
    boxes, points = some(600)
    engine = Engine(Space([Number(name) for name in "abc"]))
    engine.subscribe_many(boxes)
    assert "ranked" not in engine.explain()
    before = [one[:] for one in engine.rank_points(points, 5)]
    assert "ranked by score: warmup" in engine.explain()
    compiler.running = False
    assert [one[:] for one in engine.rank_points(points, 5)] == before
    engine.rank_points(points, 5, relaxed=True, combine="max")
    assert "ranked by the max of weights: slabs" in engine.explain()


# ---- covering


@examples(50)
@given(strategies.boxes(max_rows=30))
def test_any_set_is_compared_plainly(boxes):
    for size in (2, 1000):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(plain, "_ROWS", size)
            patch.setattr(plain, "_OTHERS", size + 1)
            assert covered_plainly(boxes).tolist() == earliest_uncovered(boxes)


@pytest.mark.parametrize("name", cases())
def test_adversarial_sets_are_compared_plainly(name):
    boxes = cases()[name][0]
    assert covered_plainly(boxes).tolist() == earliest_uncovered(boxes)


@pytest.mark.parametrize("several", [1, 2])
@pytest.mark.parametrize("unmentioned", [0.0, 0.5])
def test_a_set_of_several_blocks_is_compared_plainly(unmentioned, several):
    rng = np.random.default_rng(3)
    lo = rng.integers(0, 8, (3000, 3)).astype(float)
    hi = lo + rng.integers(0, 4, lo.shape)
    free = rng.random(lo.shape) < unmentioned
    bounds = np.where(free, -np.inf, lo), np.where(free, np.inf, hi)
    boxes = Boxes.of(*bounds, owner=np.arange(len(lo)) // several)
    assert covered_plainly(boxes).tolist() == covered_by(boxes).tolist()


def test_covering_begins_plainly_for_small_sets(compiler, monkeypatch):
    boxes, _ = some()
    compare, choice = cover_starting.begin(boxes)
    assert (compare, choice.name) == (covered_plainly, "scan")
    monkeypatch.setattr(cover_starting, "_MAX_BOXES", 10)
    assert cover_starting.begin(boxes)[0] is covered_by
    monkeypatch.undo()
    assert cover_starting.begin(boxes)[1].name == "blocks"


def test_what_is_compared_once_is_compared_plainly_unless_kernels_are_there(monkeypatch):
    boxes, _ = some()
    monkeypatch.setattr(cover_starting, "is_compiled", lambda _: True)
    assert cover_starting.at_hand(boxes) is covered_by
    monkeypatch.setattr(cover_starting, "is_compiled", lambda _: False)
    assert cover_starting.at_hand(boxes) is covered_plainly
    monkeypatch.setattr(cover_starting, "_MAX_BOXES", 10)
    assert cover_starting.at_hand(boxes) is covered_by


# ---- from an empty cache


FRESH = """
import numpy as np
from rangecast import Engine
from rangecast.cover.warmup import begin
from rangecast.kernels import ahead
from rangecast.kernels.jit import timing_compilation
from rangecast.model.attributes.base import Number
from rangecast.model.space import Space

engine = Engine(Space([Number("a"), Number("b")]))
engine.subscribe_many({"id": [f"s{i}" for i in range(1000)], "a_lo": [*range(1000)]})
points = np.array([[1.0, 2.0], [500.0, 2.0]])
with timing_compilation(lambda: None) as compiled:
    matched = [len(one) for one in engine.match_points(points)]
    best = engine.rank_points(points, 2).table().to_pydict()["subscription"]
    boxes = engine.boxes()
    compare, _ = begin(boxes)
    kept = (compare(boxes) < 0).sum()
running = [ahead._started[verb] for verb in ("match", "rank", "cover")]
for one in running:
    one.kill()
print(matched, best, kept, compiled.seconds, [one.wait() for one in running])
"""


@pytest.mark.process
def test_from_an_empty_cache_nothing_is_compiled_before_the_first_answer(tmp_path):
    env = os.environ | {"XDG_CACHE_HOME": str(tmp_path), "RANGECAST_COMPILE": ""}
    command = [sys.executable, "-c", FRESH]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    best = ["s0", "s1", "s0", "s1"]
    assert done.stdout == f"[2, 501] {best} 1 0.0 [-9, -9, -9]\n", done.stderr


BOARD = """
from rangecast.notify import Board

board = Board(2, objects={"id": [1, 2], "position": [1.0, 2.0], "value": [3.0, 4.0]})
board.subscribe("a", 0, 5)
board.set_value(1, 9.0)
"""


@pytest.mark.process
def test_a_board_from_an_empty_cache_says_at_once_what_it_waits_for(tmp_path):
    env = os.environ | {"XDG_CACHE_HOME": str(tmp_path), "RANGECAST_COMPILE": ""}
    command = [sys.executable, "-c", BOARD]
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as process:
        line = process.stderr.readline()
        process.kill()  # compiling takes half a minute
    assert "compiling kernels" in line
    assert "rangecast.notify" in line
    assert "rangecast precompile" in line


TEXTS = """
from rangecast import Engine, Number, Space, Text

engine = Engine(Space([Text("title"), Number("price")]))
engine.subscribe("a", "words(title) has 'red' and price > 3")
print(engine.match({"title": "a red bike", "price": 4.0}))
"""


@pytest.mark.process
def test_a_set_with_texts_from_an_empty_cache_says_what_is_compiled(tmp_path):
    env = os.environ | {"XDG_CACHE_HOME": str(tmp_path), "RANGECAST_COMPILE": ""}
    command = [sys.executable, "-c", TEXTS]
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as process:
        line = process.stderr.readline()
        process.kill()  # compiling takes a minute
    assert "compiling kernels" in line
    assert "rangecast precompile" in line


def test_no_process_is_started_where_kernels_could_not_be_kept_or_must_come_first(monkeypatch):
    class Kernel:
        overloads = ()
        _cache = None

    monkeypatch.setattr(ahead, "_started", {})
    assert not ahead.must_wait("match", Kernel())  # RANGECAST_COMPILE is first in all tests
    monkeypatch.delenv("RANGECAST_COMPILE")
    monkeypatch.setattr(ahead, "cache_folder", lambda: None)
    assert not ahead.must_wait("match", Kernel())
    assert ahead._started == {}
