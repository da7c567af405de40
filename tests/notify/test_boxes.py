"""notify over several attributes: the same promises as on a line, judged by brute force."""

import copy
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast import Space
from rangecast.errors import RangecastError
from rangecast.model.attributes.base import Number
from rangecast.model.attributes.text import Category, Hierarchy, String
from rangecast.model.attributes.timestamps import Timestamp
from rangecast.notify import Board
from rangecast.notify.boxes.points import Points
from tests.support.examples import examples
from tests.support.notify_model import BoxModel, needed

INF = math.inf
NAMES = ("a", "b", "c")
HOW = [("sparse", 0), ("sparse", 1000), ("sparse", 4), ("dense", 0)]
"""The algorithm, and up to how many interests their lists are worked out one by one."""
VALUES = st.integers(0, 6).map(float)
ENDS = st.sampled_from([-INF, *np.arange(-0.5, 5, 0.5).tolist(), INF])


def space_of(d):
    return Space([Number(name) for name in NAMES[:d]])


def named(place):
    return dict(zip(NAMES, place, strict=False))


@st.composite
def worlds(draw, d, most_objects=9, most_interests=25):
    """Objects and boxes on a small grid, so that ends, places and values meet all the time."""
    place = st.tuples(*[st.integers(0, 4).map(float)] * d)
    objects = [(n, draw(place), draw(VALUES)) for n in range(draw(st.integers(0, most_objects)))]
    side = st.tuples(ENDS, ENDS).map(sorted).filter(lambda e: e[0] < INF and e[1] > -INF)
    box = st.tuples(*[side] * d).map(lambda sides: tuple(zip(*sides, strict=True)))
    return objects, draw(st.lists(box, max_size=most_interests)), place


@st.composite
def histories(draw, objects, place, most=10):
    """Changes that can be applied one after the other: updates, moves, inserts and deletes."""
    there = {name for name, _, _ in objects}
    found = []
    for _ in range(draw(st.integers(1, most))):
        name = draw(st.integers(0, 9))
        kind = draw(st.sampled_from(["update", "update", "update", "move", "delete"]))
        if name not in there or kind == "move":
            found.append((name, draw(VALUES), draw(place)))
            there.add(name)
        elif kind == "delete":
            found.append((name, None))
            there.discard(name)
        else:
            found.append((name, draw(VALUES)))
    return found


def make(k, d, objects, boxes, how=("sparse", None), **options):
    names, places, ys = zip(*objects, strict=True) if objects else ((), (), ())
    columns = {NAMES[axis]: [place[axis] for place in places] for axis in range(d)}
    board = Board(
        k,
        space=space_of(d),
        objects={"id": names, **columns, "value": ys},
        algorithm=how[0],
        **options,
    )
    board.engine._painter.fixed = how[1]
    for number, box in enumerate(boxes):
        board.subscribe(number, box)
    return board


def given_to(change):
    return change if len(change) == 2 else (*change[:2], named(change[2]))


def shown(entries):
    return [(e.value, e.arrival, e.object, tuple(e.position.values())) for e in entries]


def model_of(objects):
    return BoxModel([(name, place, y) for name, place, y in objects])


@pytest.mark.conformance
@given(st.data(), st.integers(1, 3), st.integers(1, 3), st.sampled_from(HOW))
def test_lists_are_right_and_only_those_concerned_hear(data, d, k, how):
    objects, boxes, place = data.draw(worlds(d))
    board, model = make(k, d, objects, boxes, how), model_of(objects)
    held = [board[i] for i in range(len(boxes))]
    points = board.engine.tree.columns()[1]
    for number, change in enumerate(data.draw(histories(objects, place))):
        before = [model.best(*box, k) for box in boxes]
        moved = len(change) == 3 and change[0] in model.objects
        found = board.update_many([given_to(change)])
        model.change(*change)
        messages = list(found)
        assert [(m.seq, m.ordinal) for m in messages] == [(number, p) for p in range(len(messages))]
        for at, box in enumerate(boxes):
            mine = [m for m in messages if m.reaches(*held[at]._places[0])]
            after = model.best(*box, k)
            if before[at] == after and not moved:
                assert not mine
            for message in mine:
                held[at].receive(message)
            assert shown(held[at].best) == after
            if not moved:
                assert len({m.object for m in mine}) == len(mine) <= 2
        for tile, slot in zip(found.tile, found.slot, strict=True):
            least, largest = tile[: 2 * d], tile[2 * d :]
            if how[0] == "dense":
                others = found.tile[found.slot == slot]
                meets = np.maximum(others[:, : 2 * d], least) <= np.minimum(
                    others[:, 2 * d :], largest
                )
                assert moved or meets.all(axis=1).sum() == 1
            else:
                reached = points[((least <= points) & (points <= largest)).all(axis=1)]
                assert (reached.min(axis=0) == least).all()
                assert (reached.max(axis=0) == largest).all()
    assert not len(board.mismatches(board.lists()))


@pytest.mark.conformance
@given(st.data(), st.integers(1, 3), st.integers(1, 3))
def test_a_batch_sends_what_is_needed_in_order(data, d, k):
    objects, boxes, place = data.draw(worlds(d))
    board, model = make(k, d, objects, boxes), model_of(objects)
    held = [board[i] for i in range(len(boxes))]
    for _ in range(data.draw(st.integers(1, 3))):
        there = [(name, o[3], o[0]) for name, o in model.objects.items()]
        batch = data.draw(histories(there, place, most=8))
        before = BoxModel()
        before.objects = dict(model.objects)
        one_by_one = data.draw(st.integers(0, 3)) == 0
        apply = board.update_many if one_by_one else board.update_batch
        messages = list(apply([given_to(change) for change in batch]))
        stayed = {name for name, o in before.objects.items()}
        for change in batch:
            model.change(*change)
            if len(change) == 3:
                stayed.discard(change[0])
        names = {c[0] for c in batch if before.objects.get(c[0]) != model.objects.get(c[0])}
        for at, box in enumerate(boxes):
            mine = [m for m in messages if m.reaches(*held[at]._places[0])]
            for message in mine:
                held[at].receive(message)
            assert shown(held[at].best) == model.best(*box, k)
            if not one_by_one and names <= stayed:
                worse, others = needed(before, model, names, k, *box)
                told = [m.object for m in mine]
                assert told[: len(worse)] == worse
                assert sorted(told[len(worse) :]) == sorted(others)


@given(st.data(), st.integers(1, 4), st.sampled_from(["dense", "sparse"]))
def test_one_attribute_reaches_whom_the_line_reaches(data, k, algorithm):
    objects, boxes, place = data.draw(worlds(1))
    boxes = [box for box in boxes if box[0][0] > -INF and box[1][0] < INF]
    board = make(k, 1, objects, boxes, (algorithm, 0))
    line = Board(
        k,
        objects={
            "id": [name for name, _, _ in objects],
            "position": [at[0] for _, at, _ in objects],
            "value": [y for _, _, y in objects],
        },
        interests={
            "id": list(range(len(boxes))),
            "position_lo": [box[0][0] for box in boxes],
            "position_hi": [box[1][0] for box in boxes],
        },
        algorithm=algorithm,
    )
    for change in data.draw(histories(objects, place)):
        on_line = change if len(change) == 2 else (*change[:2], change[2][0])
        heard = []
        for messages, ends in (
            (board.update_many([given_to(change)]), lambda box: box),
            (line.update_many([on_line]), lambda box: (box[0][0], box[1][0])),
        ):
            heard.append(
                [[(m.object, m.value) for m in messages if m.reaches(*ends(box))] for box in boxes]
            )
        assert heard[0] == heard[1]


def come_and_go(data, board, model, boxes, changes, asked, k):
    """Let interests come, go and change between changes of objects; compare all lists."""
    there, lists = {}, {}
    for change in changes:
        name = data.draw(st.integers(0, 5))
        if boxes:
            box = data.draw(st.sampled_from(boxes))
            if name not in there:
                there[name], lists[name] = box, board.subscribe(name, box)
            elif data.draw(st.booleans()):
                board.unsubscribe(name)
                del there[name], lists[name]
            else:
                there[name], lists[name] = box, board.replace(name, box)
        for message in board.update_many([asked(change)]):
            for one in lists.values():
                one.receive(message)
        model.change(*change)
        for one, box in there.items():
            assert shown(lists[one].best) == shown(board[one].best)
            assert [e.object for e in lists[one].best] == [e[2] for e in model.best(*box, k)]
    assert list(board) == sorted(there, key=list(board).index)


@examples(25)
@given(st.data(), st.integers(1, 3), st.integers(1, 3))
def test_interests_come_and_go_between_changes(data, d, k):
    objects, boxes, place = data.draw(worlds(d, most_interests=12))
    board, model = make(k, d, objects, []), model_of(objects)
    changes = data.draw(histories(objects, place, most=15))
    come_and_go(data, board, model, boxes, changes, given_to, k)


@examples(30)
@given(st.data(), st.integers(1, 4), st.booleans())
def test_the_tree_is_right_after_any_edits(data, d, keyed):
    seed = data.draw(st.integers(0, 10**6))
    rng = np.random.default_rng(seed)
    n, span = int(rng.integers(0, 90)), int(rng.integers(1, 7))
    at = rng.integers(0, span, (n, d)).astype(float)
    ys = rng.integers(0, 5, n).astype(float)
    points = Points(at, ys, np.arange(n)) if keyed else Points(at)
    model = {i: (tuple(at[i]), ys[i], i) for i in range(n)}
    for step in range(150):
        kind = rng.integers(3)
        if kind == 0 or not model:
            place, y = rng.integers(0, span, d).astype(float), float(rng.integers(0, 5))
            row = points.add(place, y, n + step)
            assert row not in model
            model[row] = (tuple(place), y, n + step)
        elif kind == 1:
            row = int(rng.choice(list(model)))
            points.remove(row)
            del model[row]
        elif keyed:
            row = int(rng.choice(list(model)))
            y = float(rng.choice([0, 1, 2, 3, INF]))
            points.change(row, y)
            model[row] = (model[row][0], y, model[row][2])
        if step % 25:
            continue
        assert set(points.columns()[0].tolist()) == set(model)
        lo = rng.integers(0, span, d).astype(float)
        hi = lo + rng.integers(0, span, d)
        inside = {
            row
            for row, (place, _, _) in model.items()
            if all(a <= x <= b for a, x, b in zip(lo, place, hi, strict=True))
        }
        found = points.within(np.concatenate([lo, hi]))
        assert set(points.tree.row[found].tolist()) == inside
        if keyed:
            best = sorted((*model[row][1:], row) for row in inside if model[row][1] < INF)[:3]
            assert points.best(lo, hi, 3).tolist() == [row for _, _, row in best]


FLATS = Space(
    [
        Number("rent_area"),
        Category("city", ["Oslo", "Bern", "Rome"]),
        Timestamp("free"),
        Hierarchy("kind", {"house": ["villa", "terrace"], "flat": ["loft", "studio"]}),
    ]
)
ROWS = [
    {"id": 1, "rent_area": 50.0, "city": "Oslo", "free": "2026-01-01", "kind": "villa", "value": 9},
    {"id": 2, "rent_area": 60.0, "city": "Rome", "free": "2026-02-01", "kind": "loft", "value": 7},
    {
        "id": 3,
        "rent_area": 70.0,
        "city": "Bern",
        "free": "2026-03-01",
        "kind": "studio",
        "value": 7,
    },
    {"id": 4, "rent_area": None, "city": "Rome", "free": "2026-03-01", "kind": "loft", "value": 1},
]


def test_every_kind_of_attribute_and_filters_of_several_boxes():
    wishes = {
        "id": ["cities", "houses", "large", "all"],
        "filter": [
            "city in ('Oslo', 'Rome')",
            "kind = 'house' or free < '2026-01-15'",
            "rent_area >= 55 and city != 'Bern'",
            "true",
        ],
        "k": [None, 1, None, 2],
    }
    board = Board(3, space=FLATS, objects=ROWS, interests=wishes)

    def lists():
        return {one: [e.object for e in board[one].best] for one in board}

    assert lists() == {"cities": [4, 2, 1], "houses": [1], "large": [2], "all": [4, 2]}
    held = {one: board[one] for one in board}
    sent = [
        board.move(4, {"rent_area": 80}),
        board.set_value(1, 0),
        board.move(1, {"city": "Bern", "kind": "terrace"}),
        board.add(5, {"rent_area": 55.0, "city": "Rome"}, 3),
        board.remove(2),
        board.update_batch([(5, 9, {"kind": "villa"}), (3, None)]),
    ]
    assert lists() == {"cities": [4, 5], "houses": [1], "large": [4, 5], "all": [1, 4]}
    for message in (message for messages in sent for message in messages):
        for one in held.values():
            one.receive(message)
    assert {one: i.best for one, i in held.items()} == {one: board[one].best for one in board}
    assert board.objects[5].position["kind"] == "villa"
    assert board.objects[5].position["free"] is None
    again = Board(3, space=FLATS, objects=board.table(), interests=wishes)
    assert {one: again[one].best for one in again} == {one: board[one].best for one in board}


def test_several_boxes_are_one_list():
    board = Board(2, space=FLATS, objects=ROWS)
    mine = board.subscribe("x", "city = 'Oslo' or city = 'Rome' or rent_area < 65")
    for change in ([(1, 5)], [(2, 9)], [(4, None)], [(6, 0, {"city": "Oslo"})], [(2, 0)]):
        for message in board.update_many(change):
            mine.receive(message)
        assert mine.best == board["x"].best == board.best(mine.filter)
        assert len({e.object for e in mine.best}) == len(mine.best) == 2
    board.replace("x", "rent_area < 55")
    board.unsubscribe("x")
    assert (len(board), board.engine.tree.count) == (0, 0)


def edited(**options):
    board = make(2, 2, [(n, (float(n), 4.0 - n), float(n % 3)) for n in range(6)], [], **options)
    board.subscribe_many([{"id": 9, "a_lo": 1, "b_hi": 3}, {"id": 7, "k": 1}])
    board.subscribe(3, "a < 2 or b < 1")
    board.subscribe(4, "a <= 3")
    board.unsubscribe(9)
    board.update_batch([(1, 0.5), (2, None), (8, 0.25, {"a": 1, "b": 1})])
    return board


@pytest.mark.parametrize("options", [{}, {"how": ("dense", None)}, {"descending": True}])
def test_snapshots_pickles_and_copies_go_on_where_the_board_was(tmp_path, options):
    board = edited(**options)
    board.save(tmp_path / "board")

    def content(one):
        lists = {i: (str(one[i].filter), one[i].k, one[i].best) for i in one}
        return lists, list(one), list(one.objects.values()), one.seq, repr(one), one.algorithm

    twins = [
        Board.open(tmp_path / "board"),
        pickle.loads(pickle.dumps(board)),
        copy.copy(board),
    ]
    was = content(board)
    for twin in twins:
        assert content(twin) == was
        lists = twin.lists()
        lists.deliver(twin.update_many([(1, 9.0), (8, 1.5, {"b": 0}), (0, None)]))
        lists.deliver(twin.update_batch([(1, 0.0), (0, 1.0, {"a": 0})]))
        assert not len(twin.mismatches(lists))
    assert content(board) == was
    with pytest.raises(RangecastError, match="the space that it was saved with"):
        Board.open(tmp_path / "board", space=space_of(2))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda b: b.add(9, 1.0, 1), "a position must be a dict of values"),
        (lambda b: b.add(9, {"z": 1}, 1), "'z'"),
        (lambda b: b.add(9, {"a": "x"}, 1), "'a'"),
        (lambda b: b.add(9, {"a": 1}, None), "value must be a finite number"),
        (lambda b: b.add(0, {"a": 1}, 1), "already exists"),
        (lambda b: b.move(77, {"a": 1}), "no object 77"),
        (lambda b: b.update_many([(77, 1)]), "give its attributes and a value"),
        (lambda b: b.update_many([(0, 1), (1, 1, {"q": 1})]), "'q'"),
        (lambda b: b.update_batch([{"id": 0, "value": 1, "z": 3}]), "unknown field 'z'"),
        (lambda b: b.subscribe(5, "z > 1"), "z"),
        (lambda b: b.subscribe(5, "a > 1 and a < 0"), "never"),
        (lambda b: b.subscribe(5, 1), "a filter must be a string"),
        (lambda b: b.subscribe(4, "true"), "already exists"),
        (lambda b: b.subscribe(5, k=3), "from 1 to 2"),
        (lambda b: b.subscribe_many([{"id": 5, "position_lo": 1}]), "unknown column 'position_lo'"),
        (lambda b: b.subscribe_many([{"id": 5, "filter": "true", "a_lo": 1}]), "either 'filter'"),
        (lambda b: b.subscribe_many([{"id": 5, "a_lo": 2, "a_hi": 1}]), "a_hi"),
        (lambda b: b.subscribe_many([{"id": 5}, {"id": 5}]), "duplicate id"),
        (lambda b: b.replace_many([{"id": 3, "a_lo": 1}, {"id": 55}]), "no interest 55"),
        (lambda b: b.best("true", k=0), "k must be a whole number"),
    ],
)
def test_what_a_board_rejects_changes_nothing(call, says):
    board = edited()
    was = {one: board[one].best for one in board}, board.table().to_pylist(), board.seq
    with pytest.raises(RangecastError, match=says):
        call(board)
    assert ({one: board[one].best for one in board}, board.table().to_pylist(), board.seq) == was


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"space": Space([String("word")])}, "make it a category"),
        ({"space": Space([Number("value")])}, "rename the attribute"),
        ({"space": "a"}, "expected a Space"),
        ({"space": space_of(1), "epsilon": 0.5}, "boards without a space"),
        ({"space": space_of(1), "sketch": 5}, "boards without a space"),
        ({"space": space_of(1), "algorithm": "none"}, "no algorithm"),
        ({"space": space_of(2), "objects": [{"id": 1, "a": 2, "value": 1}]}, "no column 'b'"),
    ],
)
def test_what_no_board_is_made_of(options, says):
    with pytest.raises(RangecastError, match=says):
        Board(2, **options)


def test_too_many_boxes_are_given_to_sparse_and_memory_is_bounded():
    rng = np.random.default_rng(4)
    n, m, d = 600, 2000, 3
    at, ends = rng.random((n, d)), np.sort(rng.random((m, 2, d)), axis=1)
    objects = {"id": np.arange(n), **dict(zip(NAMES, at.T, strict=True)), "value": rng.random(n)}
    sides = {
        f"{name}_{end}": ends[:, place, axis]
        for axis, name in enumerate(NAMES)
        for place, end in enumerate(("lo", "hi"))
    }
    interests = {"id": np.arange(m), **sides}
    board = Board(5, space=space_of(3), objects=objects, interests=interests, algorithm="dense")
    assert board.engine.tree.memory <= m * (16 * 2 * d + 20)
    lists = board.lists()
    for one in range(8):
        lists.deliver(board.set_value(one, float(rng.random())))
    assert board.work.too_many > 0
    assert not len(board.mismatches(lists))
    batch = [(int(one), float(rng.random())) for one in rng.integers(0, n, 50)]
    lists.deliver(board.update_batch(batch))
    assert not len(board.mismatches(lists))


def test_tiles_that_the_tree_took_apart_are_merged():
    rng = np.random.default_rng(6)
    objects = [(n, tuple(rng.random(2)), float(rng.random())) for n in range(200)]
    boxes = [tuple(map(tuple, ends)) for ends in np.sort(rng.random((1000, 2, 2)), axis=1)]
    board = make(3, 2, objects, boxes)
    lists, sent = board.lists(), 0
    for one in range(40):
        messages = board.set_value(one, float(rng.random()))
        lists.deliver(messages)
        sent += len(messages)
    assert not len(board.mismatches(lists))
    assert sent < 300


def test_work_is_counted_and_few_interests_are_asked_one_by_one():
    rng = np.random.default_rng(5)
    objects = [(n, tuple(rng.random(2)), float(rng.random())) for n in range(500)]
    corners = rng.random((400, 2))
    boxes = [(tuple(low), tuple(low + 0.3)) for low in corners]
    painted, asked = (make(3, 2, objects, boxes, ("sparse", few)) for few in (0, 10**6))
    for name in range(40):
        y = float(rng.random())
        heard = []
        for board in (painted, asked):
            messages = board.set_value(name, y)
            heard.append([[m.object for m in messages if m.reaches(*box)] for box in boxes])
        assert heard[0] == heard[1]
    assert (painted.work.lists, asked.work.regions) == (0, 0)
    assert painted.work.nodes < asked.work.lists
