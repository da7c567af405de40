"""Every ranking structure: the same answers as the oracle, ties too; iterators; arrays; pickles."""

import pickle
from functools import cache, partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast.errors import UsageError
from rangecast.model.boxes import Boxes
from rangecast.rank.choose import INDEXES, build, choose
from rangecast.rank.liveness import Liveness
from rangecast.rank.papers.ir import ir
from rangecast.rank.papers.rtree import rtree
from rangecast.rank.papers.sopt import sopt
from rangecast.rank.papers.trees import Trees
from rangecast.rank.scan import Scan
from rangecast.rank.slabs.index import Slabs
from rangecast.rank.slabs.lists import CellResolution
from tests.support import adversarial, strategies
from tests.support.examples import examples

INF = np.inf
RANKERS = {
    **INDEXES,
    "ir in small pages": partial(Trees, "ir", ir, branching=2),
    "sopt in small pages": partial(Trees, "sopt", sopt, branching=2),
    "rtree in small pages": partial(Trees, "rtree", rtree, branching=3),
    "slabs in short lists": partial(Slabs, fineness=CellResolution(length=3, doubtful=0)),
    "slabs in few short lists": partial(
        Slabs, fineness=CellResolution(length=3, doubtful=1, few=4)
    ),
}
TREES = [name for name in RANKERS if name != "scan" and not name.startswith("slabs")]
LISTED = [name for name in RANKERS if name.startswith("slabs")]
CASES = adversarial.cases()


def oracle(boxes, points, k, relaxed):
    return [
        (ranked.rows.tolist(), ranked.scores.tolist())
        for ranked in Scan(boxes).rank(points, k, relaxed=relaxed)
    ]


def answers(best):
    return [tuple(part.tolist() for part in best.of(e)) for e in range(len(best.counts))]


def scored(boxes, seed=0, weighted=True):
    """The same boxes with few different scores and weights: they tie all the time."""
    rng = np.random.default_rng(seed)
    n, d = boxes.rows, boxes.dimensions
    return Boxes.of(
        boxes.lo,
        boxes.hi,
        owner=boxes.owner,
        scores=rng.integers(-2, 5, n).astype(float),
        weights=rng.integers(0, 5, (n, d)) / 3 if weighted else None,
    )


def many(n, d, free=0.1, several=False, seed=0):
    """Enough boxes for several bands of slabs and several levels of pages, and events."""
    rng = np.random.default_rng(seed)
    lo = rng.integers(0, 60, (n, d)).astype(float)
    hi = lo + rng.integers(0, 20, (n, d)) + rng.integers(0, 2, (n, d)) / 7
    unsaid = rng.random((n, d)) < free
    lo[unsaid], hi[unsaid] = -INF, INF
    owner = np.arange(n)
    if several:
        owner = np.unique(np.sort(rng.integers(0, n // 2, n)), return_inverse=True)[1]
    points = rng.integers(0, 80, (40, d)).astype(float)
    points[rng.random(points.shape) < 0.1] = INF
    return scored(Boxes.of(lo, hi, owner=owner), seed), points


@pytest.mark.conformance
@pytest.mark.parametrize("relaxed", [False, True], ids=["exact", "relaxed"])
@pytest.mark.parametrize("name", RANKERS)
@examples(20)
@given(case=strategies.boxes_and_points(), k=st.integers(1, 12))
def test_every_structure_ranks_as_the_oracle_does(name, relaxed, case, k):
    boxes, points = case
    index = RANKERS[name](boxes, relaxed=relaxed)
    expected = oracle(boxes, points, k, relaxed)
    assert answers(index.best(points, k)) == expected
    assert answers(pickle.loads(pickle.dumps(index)).best(points, k)) == expected


@pytest.mark.conformance
@pytest.mark.parametrize("relaxed", [False, True], ids=["exact", "relaxed"])
@pytest.mark.parametrize("name", RANKERS)
def test_every_structure_on_adversarial_cases(name, relaxed):
    for title, (boxes, points) in CASES.items():
        some = scored(boxes, weighted=boxes.rows % 3 != 0)
        index = RANKERS[name](some, relaxed=relaxed)
        for k in (1, 7, 1000):
            expected = oracle(some, points[::9], k, relaxed)
            assert answers(index.best(points[::9], k)) == expected, (title, k)


LARGE = {
    "1-d": many(9000, 1),
    "3-d": many(9000, 3),
    "several boxes": many(6000, 3, several=True),
    "sparse": many(3000, 20, free=0.8),
    "nothing mentioned": many(2000, 2, free=1.0),
}


@cache
def expected_on(case, k, relaxed):
    return oracle(*LARGE[case], k, relaxed)


@pytest.mark.parametrize("relaxed", [False, True], ids=["exact", "relaxed"])
@pytest.mark.parametrize("name", INDEXES)
@pytest.mark.parametrize("case", LARGE)
def test_every_structure_on_large_sets(name, relaxed, case):
    boxes, points = LARGE[case]
    index = INDEXES[name](boxes, relaxed=relaxed)
    for k in (1, 20, 300):
        assert answers(index.best(points, k)) == expected_on(case, k, relaxed)


@pytest.mark.conformance
@pytest.mark.parametrize("relaxed", [False, True], ids=["exact", "relaxed"])
@pytest.mark.parametrize("name", INDEXES)
def test_dead_rows_take_no_place(name, relaxed):
    boxes, points = many(3000, 2)
    rng = np.random.default_rng(3)
    alive = np.flatnonzero(rng.random(boxes.rows) < 0.5)
    names = rng.permutation(boxes.rows).astype(np.int32)
    died = np.full(boxes.rows, 5)
    died[names[alive]] = 8
    names.flags.writeable = died.flags.writeable = False
    best = INDEXES[name](boxes, relaxed=relaxed).best(points, 9, liveness=Liveness(names, died, 6))
    expected = oracle(boxes.take(alive), points, 9, relaxed)
    assert answers(best) == [(alive[rows].tolist(), scores) for rows, scores in expected]


def as_many(points, times=700):
    """The same events again and again, out of order: enough to be searched for together."""
    return np.random.default_rng(1).integers(0, len(points), times if len(points) else 0)


@pytest.mark.conformance
@examples(60)
@given(case=strategies.boxes_and_points(), k=st.integers(1, 12))
def test_slabs_rank_many_events_together_as_each_by_itself(case, k):
    boxes, points = case
    again = as_many(points)
    expected = oracle(boxes, points, k, False)
    assert answers(Slabs(boxes).best(points[again], k)) == [expected[e] for e in again]


@pytest.mark.conformance
@pytest.mark.parametrize("case", CASES)
def test_slabs_rank_many_events_together_on_adversarial_cases(case):
    boxes, points = CASES[case]
    boxes, again = scored(boxes), as_many(points)
    for k in (1, 3, boxes.rows + 1):
        expected = oracle(boxes, points, k, False)
        assert answers(Slabs(boxes).best(points[again], k)) == [expected[e] for e in again]


@pytest.mark.conformance
@pytest.mark.parametrize(
    ("n", "d", "several", "dead"),
    [
        (9_000, 1, False, False),
        (9_000, 1, False, True),
        (9_000, 1, True, True),
        (9_000, 3, True, False),
        (9_000, 3, True, True),
        (9_000, 6, False, True),
        (900, 33, False, False),
    ],
)
def test_slabs_rank_many_events_of_large_sets(n, d, several, dead):
    boxes, points = many(n, d, free=0.3, several=several)
    index = Slabs(boxes)
    died = np.full(boxes.rows, 9)
    if dead:
        died[np.argsort(-boxes.scores, kind="stable")[: boxes.rows // 2 : 2]] = 5
    died.flags.writeable = False
    liveness = Liveness(np.empty(0, np.int32), died if dead else died[:0], 5)
    liveness.set_rows.flags.writeable = False
    again = as_many(points, 1200)
    for k in (1, 20, 300):
        alone = [answers(index.best(point[None], k, liveness=liveness))[0] for point in points]
        assert answers(index.best(points[again], k, liveness=liveness)) == [alone[e] for e in again]
    living = np.flatnonzero(died > 5)
    few = oracle(boxes.take(living), points[:6], 20, False)
    assert [(living[rows].tolist(), scores) for rows, scores in few] == [
        answers(index.best(point[None], 20, liveness=liveness))[0] for point in points[:6]
    ]


def test_slabs_search_for_many_events_together_where_it_pays():
    """Not where hulls exclude most boxes, nor where most hold: by the words that it takes."""
    rng = np.random.default_rng(0)
    n, d, events = 4_096, 6, 512
    corners, points = rng.random((n, d)), rng.random((events, d))
    words = {}
    for width in (0.001, 0.4, 0.95):
        lo = corners * (1 - width)
        index = Slabs(Boxes.of(lo, lo + width, scores=rng.random(n)))
        words[width] = index.best(points, n).work.words  # nobody has n: all bands are searched
    hulls = len(index.layout.arrays.hull_attributes)
    assert len(index.layout.arrays.bands) - 1 == 4
    together = events * n * d // 64 + 16 * hulls  # the hulls of some events are tried
    assert words[0.001] < 0.6 * together
    assert words[0.4] == together
    assert words[0.95] < together  # what few blocks the hulls exclude
    whole = Slabs(Boxes.of(np.floor(4 * corners), np.floor(4 * corners) + 1))
    assert whole.best(np.floor(4 * points), n).work.tested == 0  # codes say all there is to say


@pytest.mark.parametrize("name", TREES)
@examples(15)
@given(case=strategies.boxes_and_points(dimensions=st.integers(1, 2)))
def test_iterators_yield_by_score_then_arrival_and_count_what_they_look_at(name, case):
    boxes, points = case
    tree = RANKERS[name](boxes)
    for point in points[:5]:
        for axis in range(boxes.dimensions):
            walk = tree.walk(axis, point[axis])
            found = list(walk)
            assert walk.getnext() is None
            held = (boxes.lo[:, axis] <= point[axis]) & (point[axis] <= boxes.hi[:, axis])
            rows = boxes.owner[held]
            order = np.lexsort((np.flatnonzero(held), rows, -boxes.scores[rows]))
            assert found == np.flatnonzero(held)[order].tolist()
            assert walk.work.calls == len(found) + 2
            assert walk.work.examined >= len(found)


@pytest.mark.parametrize("name", ["segment", "interval", "rtree", "ir", "sopt"])
def test_the_first_of_many_is_found_without_a_look_at_all(name):
    """All boxes hold the event: k of them are looked at, and a page or two."""
    n = 20_000
    boxes = Boxes.of(np.zeros((n, 1)), np.ones((n, 1)), scores=np.arange(n)[::-1].astype(float))
    best = INDEXES[name](boxes).best(np.array([[0.5]]), 10)
    assert best.rows.tolist() == [list(range(10))]
    assert best.work.examined <= 12


def test_a_list_of_the_score_sorted_tree_that_cannot_hold_the_value_is_not_scanned():
    """Section 2.2.2: each node also maintains the minimum and maximum endpoints."""
    lo = np.array([[40.0]] * 200 + [[10.0]] * 20)
    boxes = Boxes.of(lo, lo + 20, scores=np.arange(220.0))
    work = INDEXES["interval"](boxes).best(np.array([[20.0]]), 5).work
    assert (work.examined, work.holes, work.opened) == (5, 0, (1,))
    boxes, points = many(3_000, 1, free=0.0)
    points = points[np.isfinite(points[:, 0])]
    tree = INDEXES["interval"](boxes)
    source, expected = tree.source.arrays, 0
    for value in points[:, 0]:
        node = source.top[0]
        while node >= 0:
            if source.hull_lo[node] <= value <= source.hull_hi[node]:
                expected += source.filled[source.root[node]]
            node = (source.left if value < source.split[node] else source.right)[node]
    assert tree.best(points, boxes.rows).work.examined == expected


def test_the_endpoint_sorted_tree_looks_at_all_that_hold():
    n = 500
    boxes = Boxes.of(np.zeros((n, 1)), np.ones((n, 1)))
    best = INDEXES["interval-ends"](boxes).best(np.array([[0.5]]), 10)
    assert best.work.examined == n


def test_a_segment_tree_compares_nothing_and_has_the_most_entries():
    rng = np.random.default_rng(2)
    lo = rng.random((3000, 1))
    boxes, points = scored(Boxes.of(lo, lo + rng.random((3000, 1)))), rng.random((40, 1))
    segment, tree = INDEXES["segment"](boxes), INDEXES["rtree"](boxes)
    best = segment.best(points, 20)
    path = 2 * np.log2(4 * boxes.rows)
    assert best.work.examined <= len(points) * (20 + path)
    assert best.work.holes == 0
    assert segment.memory > 3 * tree.memory


def test_an_ir_tree_has_no_holes():
    """Lemma 3.1: all boxes of a list hold its split, so a page that is stabbed has one that is."""
    boxes, points = many(5000, 1, free=0.0)
    known = points[np.isfinite(points[:, 0])]
    work = Trees("ir", ir, boxes, branching=4).best(known, boxes.rows).work
    lists = np.count_nonzero(ir(boxes).root >= 0)
    assert work.holes <= len(known) * min(lists, 14)  # only the roots of lists, a path of them
    assert work.opened[0] - work.holes > work.holes


def test_memory_is_bounded():
    boxes, _ = many(20_000, 4, free=0.0)
    assert Slabs(boxes).memory < 20_000 * (4 * 24 + 24)
    assert Slabs(boxes, relaxed=True).memory < 20_000 * (4 * 32 + 24)
    for name in ("interval", "rtree", "sopt"):
        assert INDEXES[name](boxes).memory < 20_000 * 4 * 32


def test_little_is_looked_at_where_hulls_exclude():
    rng = np.random.default_rng(1)
    lo = rng.random((40_000, 4))
    boxes = Boxes.of(lo, lo + 0.05, scores=rng.random(40_000))
    work = Slabs(boxes).best(rng.random((50, 4)), 5).work
    assert work.words / 50 < 40_000 * 4 / 64 / 4


def test_one_attribute_is_looked_up_in_lists():
    boxes = Boxes.of(np.zeros((3000, 1)), np.ones((3000, 1)))
    slabs = Slabs(boxes)
    few, more = (slabs.best(np.array([[0.5], [1.0]]), k) for k in (20, 100))
    assert few.rows.tolist() == [list(range(20))] * 2
    assert few.work.words == 0 < more.work.words
    assert slabs.best(np.array([[2.0]]), 20).counts.tolist() == [0]


@pytest.mark.conformance
@pytest.mark.parametrize("name", LISTED)
@examples(80)
@given(
    case=strategies.boxes_and_points(dimensions=st.just(1)),
    k=st.integers(1, 5),
    dead=st.lists(st.booleans(), min_size=40, max_size=40),
)
def test_lists_are_right_whatever_the_ranges_and_whoever_lives(name, case, k, dead):
    boxes, points = case
    index = RANKERS[name](boxes)
    assert answers(index.best(points, k)) == oracle(boxes, points, k, False)
    alive = np.flatnonzero(~np.resize(dead, boxes.rows))
    died = np.full(boxes.rows, 5)
    died[alive] = 8
    names = np.empty(0, np.int32)
    names.flags.writeable = died.flags.writeable = False
    best = index.best(points, k, liveness=Liveness(names, died, 6))
    expected = oracle(boxes.take(alive), points, k, False)
    assert answers(best) == [(alive[rows].tolist(), scores) for rows, scores in expected]


def spread(n, holding, seed=4):
    """Ranges and events over a wide domain, so many of which hold each event on average."""
    rng = np.random.default_rng(seed)
    width = rng.random((n, 1)) * 2 * holding / n
    lo = rng.random((n, 1)) - width / 2
    return Boxes.of(lo, lo + width, scores=rng.permutation(n).astype(float)), rng.random((500, 1))


@pytest.mark.parametrize("holding", [0.1, 0.001], ids=["wide", "narrow"])
def test_the_work_of_a_list_does_not_grow_with_the_set(holding):
    for n in (6_000, 60_000):
        boxes, points = spread(n, max(40, holding * n))
        index = Slabs(boxes)
        best = index.best(points, 20)
        assert answers(best)[:40] == oracle(boxes, points[:40], 20, False)
        assert best.work.words == 0  # nobody needs more than a list
        assert best.work.examined <= 20 * len(points)  # only what is handed out
        assert best.work.tested <= 64 * len(points)


@pytest.mark.parametrize("holding", [5, 64, 600, 60_000], ids=str)
def test_lists_take_bounded_memory(holding):
    n = 60_000
    boxes, _ = spread(n, holding)
    layout = Slabs(boxes).layout.arrays
    lists = [array for name, array in layout._asdict().items() if name.startswith("list_")]
    assert sum(array.nbytes for array in lists) <= 85 * n + (2 << 20)


def test_lists_of_one_end_and_of_many_equal_ranges():
    """There is nothing to cut where all ranges begin, and the best come first there, too."""
    rng = np.random.default_rng(5)
    hi = rng.integers(1, 4, (5_000, 1)).astype(float)
    boxes = Boxes.of(np.zeros_like(hi), hi, scores=rng.random(5_000))
    points = np.array([[0.0], [1.0], [np.nextafter(1.0, 2)], [2.5], [3.0], [3.5], [-1.0], [INF]])
    for name in LISTED:
        best = RANKERS[name](boxes).best(points, 3)
        assert answers(best) == oracle(boxes, points, 3, False)
        assert best.work.words == 0


def test_a_list_that_is_not_enough_leads_to_the_blocks():
    """The dead, or the boxes of one subscription, may take all places of a list."""
    boxes = Boxes.of(np.zeros((300, 1)), np.ones((300, 1)), scores=np.arange(300.0))
    died = np.full(300, 9)
    died[200:] = 1
    names = np.empty(0, np.int32)
    names.flags.writeable = died.flags.writeable = False
    best = Slabs(boxes).best(np.array([[0.5]]), 3, liveness=Liveness(names, died, 5))
    assert best.rows.tolist() == [[199, 198, 197]]
    assert best.work.words > 0
    owner = np.maximum(0, np.arange(300) - 150)
    many = Boxes.of(np.zeros((300, 1)), np.ones((300, 1)), owner=owner)
    assert Slabs(many).best(np.array([[0.5]]), 3).rows.tolist() == [[0, 1, 2]]


def test_k_and_the_shape_of_events_are_checked():
    boxes, points = many(100, 2)
    for name in INDEXES:
        index = build(boxes, name)
        with pytest.raises(UsageError, match="at least 1"):
            index.best(points, 0)
        with pytest.raises(UsageError, match=r"\(events, 2\)"):
            index.best(points[:, :1], 3)


def test_choose():
    boxes, _ = many(100, 2)
    assert choose(boxes).name == "slabs"
    assert "100 boxes on 2 attributes" in choose(boxes).why
    assert choose(boxes, "sopt").name == "sopt"
    with pytest.raises(UsageError, match="did you mean 'slabs'"):
        choose(boxes, "slab")
    with pytest.raises(UsageError, match="at least 2 slots"):
        ir(boxes, branching=1)
