"""notify with a range on one attribute and an upper bound on the other, judged by brute force."""

import copy
import json
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast import Space
from rangecast.errors import RangecastError
from rangecast.kernels.bundle import Bundle
from rangecast.model.attributes.base import Integer, Number
from rangecast.model.attributes.text import Category
from rangecast.notify import Board
from rangecast.notify.boxes.regions import Tiles
from rangecast.workloads import generate
from tests.notify.test_boxes import ENDS, come_and_go, histories, model_of, space_of
from tests.support.examples import examples
from tests.support.notify_model import BoxModel, needed

INF = math.inf
MAX = float(np.finfo(float).max)


@st.composite
def worlds(draw, upper, most_objects=9, most_interests=25):
    """Objects and interests on a small grid: ends, places and values meet all the time.

    Values may be missing, so places may be at inf, and so may be ends.
    """
    coordinate = st.sampled_from([0.0, 1.0, 2.0, 3.0, 4.0, INF])
    place = st.tuples(coordinate, coordinate)
    value = st.integers(0, 6).map(float)
    objects = [(n, draw(place), draw(value)) for n in range(draw(st.integers(0, most_objects)))]
    some = st.tuples(ENDS, ENDS).map(sorted).filter(lambda e: e[0] < INF and e[1] > -INF)
    side = some.map(lambda e: e if e[0] == -INF else (e[0], min(e[1], MAX))) | st.just((INF, INF))
    bound = ENDS.filter(lambda end: end > -INF)
    box = st.tuples(side, bound).map(
        lambda one: tuple(
            (one[0][end], (-INF, one[1])[end])[:: 1 if upper == "b" else -1] for end in range(2)
        )
    )
    return objects, draw(st.lists(box, max_size=most_interests)), place


def finite(objects):
    """Return places as a user gives them: without what is missing."""
    names = "ab"
    return [
        {
            "id": one,
            "value": y,
            **{n: None if v == INF else v for n, v in zip(names, at, strict=True)},
        }
        for one, at, y in objects
    ]


def half(k, upper, objects, boxes, algorithm="sparse", **options):
    given = finite(objects) or None
    options = {"algorithm": algorithm, **options}
    board = Board(k, space=space_of(2), upper_bound_attribute=upper, objects=given, **options)
    for number, box in enumerate(boxes):
        board.subscribe(number, box)
    ends = [board[number].filter.arrays() for number in board]  # -inf is spelled in one way
    boxes[:] = [(tuple(lo[0].tolist()), tuple(hi[0].tolist())) for lo, hi in ends]
    return board


def asked(change):
    """Return a change as a board takes it; what is missing stays as it was, or is missing."""
    if len(change) == 2:
        return change
    return *change[:2], {n: None if v == INF else v for n, v in zip("ab", change[2], strict=True)}


@pytest.mark.conformance
@given(st.data(), st.sampled_from("ab"), st.integers(1, 4), st.sampled_from(["sparse", "dense"]))
def test_lists_are_right_and_only_those_concerned_hear(data, upper, k, algorithm):
    objects, boxes, place = data.draw(worlds(upper))
    board, model = half(k, upper, objects, boxes, algorithm), model_of(objects)
    held = [board[i] for i in range(len(boxes))]
    points = board.engine.tree.columns()[1]
    for number, change in enumerate(data.draw(histories(objects, place))):
        before = [model.best(*box, k) for box in boxes]
        moved = len(change) == 3 and change[0] in model.objects
        found = board.update_many([asked(change)])
        model.change(*change)
        messages = list(found)
        assert [(m.seq, m.ordinal) for m in messages] == [(number, p) for p in range(len(messages))]
        for at, box in enumerate(boxes):
            mine = [m for m in messages if m.reaches(*box)]
            after = model.best(*box, k)
            if before[at] == after and not moved:
                assert not mine
            for message in mine:
                held[at].receive(message)
            got = [(e.value, e.arrival, e.object) for e in held[at].best]
            assert got == [entry[:3] for entry in after]
            if not moved:
                assert len({m.object for m in mine}) == len(mine) <= 2
        for tile, slot in zip(found.tile, found.slot, strict=True):
            least, largest = tile[:4], tile[4:]
            if algorithm == "dense":
                others = found.tile[found.slot == slot]
                meets = np.maximum(others[:, :4], least) <= np.minimum(others[:, 4:], largest)
                assert moved or meets.all(axis=1).sum() == 1
            else:
                reached = points[((least <= points) & (points <= largest)).all(axis=1)]
                assert (reached.min(axis=0) == least).all()
                assert (reached.max(axis=0) == largest).all()
    assert not len(board.mismatches(board.lists()))


@pytest.mark.conformance
@given(st.data(), st.sampled_from("ab"), st.integers(1, 4), st.sampled_from(["sparse", "dense"]))
def test_whoever_hears_would_hear_over_boxes_too(data, upper, k, algorithm):
    objects, boxes, place = data.draw(worlds(upper))
    here = half(k, upper, objects, boxes, algorithm)
    there = Board(k, space=space_of(2), objects=finite(objects) or None)
    for number, box in enumerate(boxes):
        there.subscribe(number, box)
    one_by_one = data.draw(st.booleans())
    for change in data.draw(histories(objects, place)):
        heard = []
        for board in (here, there):
            apply = board.update_many if one_by_one else board.update_batch
            sent = apply([asked(change)])
            heard.append([[(m.object, m.value) for m in sent if m.reaches(*box)] for box in boxes])
        assert [sorted(one) for one in heard[0]] == [sorted(one) for one in heard[1]]


@examples(50)
@given(st.data(), st.integers(1, 3))
def test_a_batch_sends_what_is_needed_in_order(data, k):
    objects, boxes, place = data.draw(worlds("b"))
    board, model = half(k, "b", objects, boxes), model_of(objects)
    held = [board[i] for i in range(len(boxes))]
    for _ in range(2):
        there = [(name, o[3], o[0]) for name, o in model.objects.items()]
        batch = data.draw(histories(there, place, most=8))
        before = BoxModel()
        before.objects = dict(model.objects)
        messages = list(board.update_batch([asked(change) for change in batch]))
        stayed = set(before.objects)
        for change in batch:
            model.change(*change)
            if len(change) == 3:
                stayed.discard(change[0])
        names = {c[0] for c in batch if before.objects.get(c[0]) != model.objects.get(c[0])}
        for at, box in enumerate(boxes):
            mine = [m for m in messages if m.reaches(*box)]
            for message in mine:
                held[at].receive(message)
            got = [(e.value, e.arrival, e.object) for e in held[at].best]
            assert got == [entry[:3] for entry in model.best(*box, k)]
            if names <= stayed:
                worse, others = needed(before, model, names, k, *box)
                told = [m.object for m in mine]
                assert told[: len(worse)] == worse
                assert sorted(told[len(worse) :]) == sorted(others)


@examples(50)
@given(
    st.data(),
    st.integers(1, 6),
    st.sampled_from([0.25, 0.5, 1.0]),
    st.sampled_from(["sparse", "dense"]),
)
def test_an_approximation_keeps_lists_exact(data, k, epsilon, algorithm):
    objects, boxes, place = data.draw(worlds("b"))
    board, exact = (half(k, "b", objects, boxes, algorithm, epsilon=e) for e in (epsilon, None))
    lists, model = board.lists(), model_of(objects)
    for change in data.draw(histories(objects, place)):
        before = BoxModel()
        before.objects = dict(model.objects)
        messages = board.update_many([asked(change)])
        model.change(*change)
        assert len(messages) <= len(exact.update_many([asked(change)]))
        lists.deliver(messages)
        assert not len(board.mismatches(lists))
        if len(change) == 3:
            continue
        for message in messages:
            for box in boxes:
                if message.reaches(*box):
                    ranks = before.rank(message.object, *box), model.rank(message.object, *box)
                    assert min(ranks) <= (1 + epsilon) * k + 1


@examples(25)
@given(st.data(), st.integers(1, 3))
def test_interests_come_and_go_between_changes(data, k):
    objects, boxes, place = data.draw(worlds("b", most_interests=12))
    board, model = half(k, "b", objects, []), model_of(objects)
    changes = data.draw(histories(objects, place, most=15))
    come_and_go(data, board, model, boxes, changes, asked, k)


@pytest.mark.parametrize(
    "options", [{}, {"algorithm": "dense"}, {"descending": True}, {"epsilon": 0.5}]
)
def test_snapshots_pickles_and_copies_go_on_where_the_board_was(tmp_path, options):
    objects = [(n, (float(n), 4.0 - n), float(n % 3)) for n in range(6)]
    board = half(2, "b", objects, [], **options)
    board.subscribe_many([{"id": 9, "a_lo": 1, "b_hi": 3}, {"id": 7, "k": 1}])
    board.subscribe(3, "a < 2 and b < 2 or a > 4")
    board.update_batch([(1, 0.5), (2, None), (8, 0.25, {"a": 1, "b": 1})])
    board.save(tmp_path / "board")

    def content(one):
        lists = {i: (str(one[i].filter), one[i].k, one[i].best) for i in one}
        own = (
            one.upper_bound_attribute,
            one.epsilon,
            one.algorithm,
            one.descending,
            type(one),
            one.seq,
        )
        return lists, list(one.objects.values()), own

    twins = Board.open(tmp_path / "board"), pickle.loads(pickle.dumps(board)), copy.copy(board)
    for twin in twins:
        assert content(twin) == content(board)
        lists = twin.lists()
        lists.deliver(twin.update_many([(1, 9.0), (8, 1.5, {"b": 0}), (0, None)]))
        assert not len(twin.mismatches(lists))
    with pytest.raises(RangecastError, match="no lower bound on 'a'"):
        Board.open(tmp_path / "board", upper_bound_attribute="a")
    if "epsilon" in options:
        with pytest.raises(RangecastError, match="give epsilon=None as well"):
            Board.open(tmp_path / "board", upper_bound_attribute=None)
    without = Board.open(tmp_path / "board", upper_bound_attribute=None, epsilon=None)
    assert content(without)[0] == content(board)[0]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda b: b.subscribe(5, "b >= 1"), "no lower bound on 'b'"),
        (lambda b: b.subscribe(5, "a > 1 or b between 1 and 2"), "write only b <= ..."),
        (lambda b: b.subscribe(5, "b is null"), "no lower bound"),
        (lambda b: b.replace(0, "b > 1"), "no lower bound"),
        (lambda b: b.subscribe_many([{"id": 5, "b_hi": 1}, {"id": 6, "b_lo": 1}]), "b_lo"),
        (lambda b: b.subscribe_many({"id": [5], "filter": ["b > 2"]}), "no lower bound"),
        (lambda b: b.replace_many([{"id": 0, "b_lo": 1}]), "no lower bound"),
    ],
)
def test_a_lower_bound_is_rejected_and_changes_nothing(call, says):
    board = half(2, "b", [(0, (1.0, 1.0), 1.0)], [((0.0, -INF), (2.0, 3.0))])
    with pytest.raises(RangecastError, match=says):
        call(board)
    assert (list(board), board.engine.tree.count, len(board[0].best)) == ([0], 1, 1)
    assert [e.object for e in board.best("b >= 1")] == [0]


TOWNS = Space([Number("km"), Category("town", ["Arles", "Bern"])])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"upper_bound_attribute": "a"}, "there is no space"),
        (
            {"space": space_of(2), "upper_bound_attribute": "z"},
            "upper_bound_attribute is 'z', which isn't an attribute of the space",
        ),
        ({"space": TOWNS, "upper_bound_attribute": "town"}, "a category, which has no order"),
        ({"space": space_of(3), "upper_bound_attribute": "a"}, "the space has 3: a, b, c"),
        ({"space": space_of(2), "upper_bound_attribute": "a", "sketch": 4}, "without a space"),
        ({"space": space_of(2), "upper_bound_attribute": "a", "epsilon": 2}, "at most 1"),
    ],
)
def test_what_no_board_is_made_of(options, says):
    with pytest.raises(RangecastError, match=says):
        Board(2, **options)


@pytest.mark.parametrize(
    "options", [{}, {"space": space_of(2)}, {"space": space_of(2), "upper_bound_attribute": "b"}]
)
def test_lists_of_boxes_that_fit_alone_are_worked_out(options):
    board, columns = Board(1, **options), 4 if options else 2
    assert board.lists(np.zeros((3, columns))).ys.shape == (3, 1)
    for wrong in (np.zeros((3, columns + 1)), np.zeros(columns), np.full((1, columns), np.nan)):
        with pytest.raises(RangecastError, match=r"columns; given|NaN"):
            board.lists(wrong)


def test_a_domain_that_begins_somewhere_is_no_lower_bound():
    space = Space([Number("km", min=0), Integer("m2", min=10, max=200)])
    board = Board(1, space=space, upper_bound_attribute="m2", algorithm="dense")
    ann = board.subscribe("ann", "km between 2 and 5 and m2 <= 80")
    bob = board.subscribe("bob", "m2 >= 10")
    for message in board.add("x", {"km": 3, "m2": 10}, 5):
        ann.receive(message), bob.receive(message)
    assert ann.best == bob.best == board["ann"].best != []
    with pytest.raises(RangecastError, match="no lower bound"):
        board.subscribe("cid", "m2 > 10")


def test_what_needs_much_room_gets_it():
    """Objects on a diagonal: one interval of heights each; thousands of interests in one region."""
    n, m = 150, 3000
    rng = np.random.default_rng(3)
    ends = np.sort(rng.uniform(-n, n, (m, 2)), axis=1)
    ends[:, 0] = -np.abs(ends[:, 0])
    places = {"a": -np.arange(n, 0, -1.0), "b": np.arange(1.0, n + 1)}
    objects = {"id": np.arange(1, n + 1), **places, "value": np.arange(n) / n}
    wishes = {"id": np.arange(m), "a_lo": ends[:, 0], "a_hi": np.abs(ends[:, 1])}
    wishes["b_hi"] = rng.uniform(0, n, m)
    boards = [
        Board(
            2,
            space=space_of(2),
            upper_bound_attribute="b",
            objects=objects,
            interests=wishes,
            algorithm=name,
        )
        for name in ("sparse", "dense")
    ]
    for board in boards:
        lists = board.lists()
        for change in [(0, 2.0, {"a": 0, "b": 0}), (0, -1.0), (0, 0.5), (0, None)]:
            lists.deliver(board.update_many([change]))
            assert not len(board.mismatches(lists))
    assert boards[0].work.min_height == boards[1].work.min_height > n
    assert boards[0].work.first_k == boards[1].work.first_k == 8
    assert boards[0].work.min_y <= boards[1].work.min_y


def test_calls_and_memory_of_a_small_market():
    made = generate("topk-1.5d", seed=1, objects=2000, interests=20_000, updates=300)
    objects, wishes, updates = (made.tables[n] for n in ("objects", "interests", "updates"))
    changes = list(zip(updates["id"].to_pylist(), updates["value"].to_pylist(), strict=True))
    work, sent = {}, {}
    for way in ("sparse", "as the paper", "dense"):
        algorithm = "dense" if way == "dense" else "sparse"
        board = Board(
            5,
            space=made.space,
            upper_bound_attribute="z",
            objects=objects,
            interests=wishes,
            algorithm=algorithm,
        )
        board.engine._painter.as_paper = way == "as the paper"
        lists = board.lists()
        messages = board.update_many(changes)
        lists.deliver(messages)
        assert not len(board.mismatches(lists))
        work[way], sent[way] = board.work, [m[:5] for m in messages]
        lists.deliver(board.update_batch([(one, y / 2) for one, y in changes[:50]]))
        assert not len(board.mismatches(lists))
        assert board.engine.tree.memory <= len(board) * (3 * 16 + 20)
    assert sent["sparse"] == sent["as the paper"]
    assert work["sparse"].min_y < work["as the paper"].min_y < work["dense"].min_y
    assert work["sparse"].snap < work["as the paper"].snap
    assert work["dense"].snap == 0
    assert 5 < work["dense"].min_height / 300 < 15


def test_the_shell_takes_an_upper_bound(cli, tmp_path):
    cli("generate", "topk-1.5d", "--objects", 60, "--interests", 80, "--updates", 40, "-o", "data")
    files = [f"data/{name}.parquet" for name in ("objects", "updates", "interests")]
    files += ["--space", "data/space.toml", "-k", 3]
    lists = []
    for upper in (
        (),
        ("--upper-bound-attribute", "z"),
        ("--upper-bound-attribute", "z", "--algorithm", "dense"),
    ):
        options = ("--verify", "--json", "--lists", "lists.csv", "-o", "messages.csv")
        facts = json.loads(cli("notify", *files, *upper, *options).stdout)
        assert (facts["updates"], facts["mismatches"]) == (40, 0)
        lists.append((tmp_path / "lists.csv").read_text())
    assert len(set(lists)) == 1
    assert "snap" in facts["calls"]
    assert "-inf" in (tmp_path / "messages.csv").read_text()
    (tmp_path / "wishes.csv").write_text("id,filter\n0,z >= 0.5\n")
    bad = cli(
        "notify", *files[:2], "wishes.csv", *files[3:], "--upper-bound-attribute", "z", code=2
    ).stderr
    assert "no lower bound on 'z'" in bad
    assert (
        "--space is missing"
        in cli("notify", *files[:3], "--upper-bound-attribute", "z", code=2).stderr
    )
    assert (
        "isn't an attribute of the space"
        in cli("notify", *files, "--upper-bound-attribute", "q", code=2).stderr
    )


def test_dense_gets_room_for_many_boxes_and_gives_up_beyond_the_most(monkeypatch):
    rng = np.random.default_rng(8)
    n = 300
    objects = {"id": np.arange(n), "a": rng.random(n), "b": rng.random(n), "value": rng.random(n)}
    wishes = {"id": np.arange(50), "a_lo": rng.random(50) / 2, "b_hi": rng.random(50)}
    sent = []
    for most in (1 << 18, 0):
        monkeypatch.setattr("rangecast.notify.upper_bound.painter.MAX_BOXES", most)
        options = {"space": space_of(2), "upper_bound_attribute": "b", "algorithm": "dense"}
        board = Board(6, objects=objects, interests=wishes, **options)
        board.engine._painter._most = Bundle(Tiles.of(2, 8))
        lists = board.lists()
        sent.append(0)
        for one in range(20):
            messages = board.update_many([(one, -1.0), (one, 2.0)])
            lists.deliver(messages)
            sent[-1] += len(messages)
        assert not len(board.mismatches(lists))
        assert (board.work.too_many > 0) == (most == 0)
    assert sent[1] < sent[0]
