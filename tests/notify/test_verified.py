"""Interests with shapes and arithmetic: the promises of boxes, judged by rational arithmetic."""

import copy
import pickle
import random

import pytest

from rangecast import Engine, Location, Number, Point, Space, String
from rangecast.errors import RangecastError
from rangecast.model.attributes.patterns import Text
from rangecast.model.attributes.residuals import Arithmetic
from rangecast.model.filters.filter import Filter
from rangecast.model.validation.inputs import as_filter
from rangecast.notify import Board
from tests.arithmetic import oracle as arithmetic
from tests.shapes import oracle as shapes
from tests.support.notify_model import Model, needed

SEEDS = [*range(3), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(3, 30))]


def space_of(border="closed"):
    return Space([Point("place", border=border), Number("v"), Arithmetic("sums")])


class ShapeModel(Model):
    """Objects at dicts of values; a range is a test of such a dict."""

    def inside(self, test, _=None):
        return sorted((o for o in self.objects.values() if test(o[3])), key=lambda o: o[:2])


def remembered(terms):
    """Return the test of a disjunction, which evaluates each position once."""
    known = {}

    def holds(at):
        key = tuple(at.values())
        if key not in known:
            known[key] = any(all(test(at) for _, test in term) for term in terms)
        return known[key]

    return holds


class Draw:
    """Random interests and changes whose positions and values often coincide."""

    def __init__(self, seed, border="closed"):
        self.random = random.Random(seed)
        self.shapes = shapes.Draw(seed)
        self.arithmetic = arithmetic.Draw(seed, ("x", "y", "v"))
        self.border = border

    def literal(self):
        """Return the text of a condition, and the test that it stands for."""
        r = self.random
        kind = r.random()
        if kind < 0.2:
            least = float(r.randint(0, 4))
            return f"v >= {least!r}", lambda at: at["v"] is not None and at["v"] >= least
        if kind < 0.6:
            text, test = self.shapes.shape(self.border)
            negated = r.random() < 0.2
            return (
                f"not {text}" if negated else text
            ), lambda at: None not in (at["x"], at["y"]) and test(at) != negated
        comparison = self.arithmetic.comparison()
        while arithmetic.is_simple(comparison):
            comparison = self.arithmetic.comparison()
        text = self.arithmetic.comparison_text(comparison)
        return text, lambda at: arithmetic.holds(comparison, at)

    def interest(self, space):
        """Return a filter that some object may lie in, and its test."""
        while True:
            terms = [
                [self.literal() for _ in range(self.random.choice([1, 1, 2]))]
                for _ in range(self.random.choice([1, 1, 1, 2]))
            ]
            text = " or ".join(" and ".join(text for text, _ in term) for term in terms)
            try:
                as_filter(text, space)
            except RangecastError:  # it can never match
                continue
            return text, remembered(terms)

    def position(self):
        r = self.random
        lacks = 0.08
        values = {
            "x": self.shapes.coordinate(),
            "y": self.shapes.coordinate(),
            "v": float(r.randint(0, 5)),
        }
        return {name: None if r.random() < lacks else value for name, value in values.items()}

    def changes(self, model, count):
        """Return changes that can be applied one after the other."""
        r, there, found = self.random, set(model.objects), []
        for _ in range(count):
            name, y = r.randrange(12), float(r.randint(0, 6))
            kind = r.choice(["set", "set", "set", "move", "remove"])
            if name not in there or kind == "move":
                found.append((name, y, self.position()))
                there.add(name)
            elif kind == "remove":
                found.append((name, None))
                there.discard(name)
            else:
                found.append((name, y))
        return found


def shown(entries):
    return [(e.value, e.arrival, e.object, e.position) for e in entries]


@pytest.mark.parametrize("seed", SEEDS)
def test_lists_and_messages_are_those_of_the_definition(seed):
    draw = Draw(seed, ["closed", "open", "once"][seed % 3])
    k, r = seed % 3 + 1, draw.random
    space = space_of(draw.border)
    board, model = Board(k, space=space, algorithm=("sparse", "dense")[seed % 2]), ShapeModel()
    tests = {}
    for name in range(25):
        text, tests[name] = draw.interest(space)
        board.subscribe(name, text)
    held = {name: board[name] for name in tests}
    for _ in range(20):
        is_batch, before = r.random() < 0.5, ShapeModel()
        before.objects = dict(model.objects)
        changes = draw.changes(model, r.randint(1, 6) if is_batch else 1)
        messages = (board.update_batch if is_batch else board.update_many)(changes)
        for change in changes:
            model.change(*change)
        moved = {change[0] for change in changes if len(change) == 3} & set(before.objects)
        names = {c[0] for c in changes if before.objects.get(c[0]) != model.objects.get(c[0])}
        told = set()
        for name, test in tests.items():
            places = held[name]._places
            mine = [m for m in messages if any(m.reaches(*place) for place in places)]
            told |= {name} if mine else set()
            for message in mine:
                held[name].receive(message)
            best = model.best(test, None, k)
            assert shown(held[name].best) == best == shown(board[name].best)
            if len(places) == 1 and not moved:
                worse, others = needed(before, model, names, k, test, None)
                objects = [m.object for m in mine]
                assert objects[: len(worse)] == worse
                assert sorted(objects[len(worse) :]) == sorted(others)
        assert set(board.affected_interests(messages)) == told
    assert not len(board.mismatches(board.lists()))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_shape_that_is_a_box_hears_what_the_box_hears(seed):
    draw = Draw(seed)
    k, r = seed % 3 + 1, draw.random
    boxes, verified = Board(k, space=space_of()), Board(k, space=space_of())
    for name in range(20):
        (x0, x1), (y0, y1) = (sorted(r.sample(range(8), 2)) for _ in range(2))
        box = f"x between {x0} and {x1} and y between {y0} and {y1}"
        ring = f"{x0} {y0}, {x1} {y0}, {x1} {y1}, {x0} {y1}, {x0} {y0}"
        terms = f"x * 1 >= {x0} and x * 1 <= {x1} and y * 1 >= {y0} and y * 1 <= {y1}"
        boxes.subscribe(name, box)
        verified.subscribe(name, r.choice([f"within(place, 'POLYGON (({ring}))')", terms]))
    model = ShapeModel()
    for _ in range(30):
        changes = draw.changes(model, r.randint(1, 5))
        for change in changes:
            model.change(*change)
        heard = []
        for board in (boxes, verified):
            apply = board.update_batch if len(changes) > 2 else board.update_many
            messages, lists = apply(changes), {name: board[name]._places for name in board}
            heard.append(
                {
                    name: [(m.seq, m.object, m.value) for m in messages if m.reaches(*places[0])]
                    for name, places in lists.items()
                }
            )
        assert heard[0] == heard[1]


def test_equal_shapes_share_a_view():
    board = Board(1, space=space_of(), objects=[{"id": 1, "x": 0, "y": 0, "v": 0, "value": 5}])
    where = "within(place, circle(0, 0, 2))"
    board.subscribe_many([{"id": name, "filter": where} for name in range(50)])
    messages = board.set_value(1, 4)
    assert (len(messages), board.work.candidates, board.work.refills) == (1, 1, 1)
    assert board.affected_interests(messages) == list(range(50))
    for name in range(49):
        board.unsubscribe(name)
        assert len(board.affected_interests(board.set_value(1, name))) == 49 - name
    board.subscribe(77, where)
    board.unsubscribe(49)
    assert board.affected_interests(board.set_value(1, -1)) == [77]
    board.unsubscribe(77)
    assert not len(board.set_value(1, -2))
    assert board.work.refills == 1
    board.subscribe(78, where)  # the same again, after none was left
    assert board.affected_interests(board.set_value(1, -3)) == [78]


def test_a_condition_that_always_holds_in_a_box_is_not_tested():
    board = Board(1, space=space_of())
    where = "within(place, circle(4, 4, 5)) and -1e308 + (y - (x + y)) < 3"
    held = board.subscribe("a", where)
    words = board.bounds("a")[0, [4, 9]]
    assert words[0] < words[1]
    assert [held.receive(m) for m in board.add(1, {"x": 3, "y": 2}, 5)] == [True]
    assert [entry.object for entry in held.best] == [1]
    assert str(held.filter) == str(Filter.parse(where, board.space))


def test_a_query_adds_no_condition_to_the_space():
    board = Board(2, space=space_of(), objects=[{"id": 1, "x": 1, "y": 1, "v": 1, "value": 2}])
    board.subscribe("a", "x + y < 3")
    known = board.space.vocabularies
    for place in range(20):
        found = board.best(f"within(place, circle({place}, 1, 2.5)) and x + y < {place}")
        assert [entry.object for entry in found] == [1] * (place == 3)
    filter_ = Filter.parse("x + y < 7", space_of())
    assert [entry.object for entry in board.best(filter_)] == [1]
    with pytest.raises(RangecastError, match="the filter is of another space"):
        board.best(Filter.parse("x < 7", Space([Number("x")])))
    with pytest.raises(RangecastError, match="a filter must be a string"):
        board.best(7)
    assert board.space.vocabularies == known


def test_interests_come_and_go_and_a_board_is_saved_copied_and_pickled(tmp_path):
    draw = Draw(7)
    space, r = space_of(), draw.random
    board, model, tests, held = Board(3, space=space), ShapeModel(), {}, {}
    for change in range(60):
        changes = draw.changes(model, 2)
        for message in board.update_batch(changes):
            for interest in held.values():
                interest.receive(message)
        for one in changes:
            model.change(*one)
        for name, test in tests.items():
            assert shown(held[name].best) == model.best(test, None, 2)
        name = r.randrange(12)
        text, test = draw.interest(space)
        if name in tests and r.random() < 0.3:
            board.unsubscribe(name)
            del tests[name], held[name]
        else:
            held[name] = board.upsert(name, text, k=2)
            tests[name] = test
        if change % 10 == 9:
            board.save(tmp_path / str(change))
            board = r.choice([Board.open(tmp_path / str(change)), copy.copy(board)])
            board = pickle.loads(pickle.dumps(board)) if r.random() < 0.3 else board
            space = board.space
        listed = board.list_table().to_pylist()
        for name, test in tests.items():
            best = model.best(test, None, 2)
            mine = [(row["value"], row["object"]) for row in listed if row["interest"] == name]
            assert mine == [(y, thing) for y, _, thing, _ in best]
            assert shown(board[name].best) == best
    assert not len(board.mismatches(board.lists()))


def test_a_view_is_filled_only_when_it_falls_below_k():
    board = Board(
        2,
        space=space_of(),
        objects=[{"id": n, "x": n % 20, "y": n // 20, "v": 0, "value": n} for n in range(400)],
        interests=[{"id": "disk", "filter": "within(place, circle(5, 5, 3))"}],
    )
    assert board.work.candidates == board.work.refills == 0
    assert board.plan[1].startswith("apart from 1 box with shapes or arithmetic, an object lies in")
    board.set_value(399, -5)
    board.update_batch([(0, 3), (20, None), (19, 5, {"x": 19, "y": 3})])
    assert board.work.candidates == board.work.refills == 0  # none of them is near
    inside = [entry.object for entry in board.best("within(place, circle(5, 5, 3))", k=30)]
    assert len(inside) == 29
    board.set_value(inside[0], 500)
    assert (board.work.candidates, board.work.refills) == (1, 1)  # the first change around it
    for value in range(1000):
        board.set_value(inside[value % 29], 1000 + value % 7)
        board.set_value(inside[value % 29], value % 11)
    assert (board.work.candidates, board.work.refills) == (2001, 1)
    board.set_value(inside[0], 2000)
    corner = 2 * 20 + 2  # in the box around the disk, and not in the disk
    board.set_value(corner, -1)
    assert (board.work.candidates, board.work.refills) == (2003, 1)
    for place, name in enumerate(inside):
        board.set_value(name, 3000 + place)  # the best ones get worse, one by one
    assert board.work.refills <= 1 + 29 // 10 + 1
    assert [entry.object for entry in board["disk"].best] == inside[:2]


@pytest.mark.parametrize("seed", range(3))
def test_lists_stay_right_when_views_overflow_and_run_short(seed):
    """Far more objects inside than a view has room for, which get worse, leave and come back."""
    r = random.Random(seed)
    k = seed + 1
    board, model = Board(k, space=space_of()), ShapeModel()
    tests = {
        "disk": ("within(place, circle(5, 5, 4))", lambda x, y: (x - 5) ** 2 + (y - 5) ** 2 <= 16),
        "half": ("x + 2*y >= 12", lambda x, y: x + 2 * y >= 12),
        "both": ("x + y > 6 and x - y < 2", lambda x, y: x + y > 6 and x - y < 2),
    }
    held = {name: board.subscribe(name, text) for name, (text, _) in tests.items()}
    for turn in range(250):
        best = sorted(model.objects.values(), key=lambda o: o[:2])[: 3 * k]
        changes = []
        for _ in range(r.choice([1, 1, 6])):
            name, y = r.randrange(80), float(r.randint(0, 30))
            if name not in model.objects or r.random() < 0.1:
                at = {"x": float(r.randint(0, 9)), "y": float(r.randint(0, 9)), "v": 1.0}
                changes.append((name, y, at))
            elif best and turn % 50 > 20:  # a view runs short when its best objects get worse
                changes.append((r.choice(best)[2], r.choice([None, 25.0 + y])))
            else:
                changes.append((name, y))
        changes = list({change[0]: change for change in changes}.values())
        messages = (board.update_batch if len(changes) > 1 else board.update_many)(changes)
        for change in changes:
            model.change(*change)
        for name, (_, test) in tests.items():
            for message in messages:
                held[name].receive(message)
            inside = model.best(lambda at, test=test: test(at["x"], at["y"]), None, k)
            assert shown(held[name].best) == inside
    assert board.work.refills > 6  # more often than once per interest


@pytest.mark.parametrize("values", ["equal", "missing", "few"])
def test_ties_missing_values_and_few_objects(values):
    r = random.Random(3)
    objects = [
        {
            "id": n,
            "x": None if values == "missing" and n % 2 else float(r.randint(0, 4)),
            "y": float(r.randint(0, 4)),
            "v": 1.0,
            "value": 1.0 if values == "equal" else float(r.randint(0, 2)),
        }
        for n in range(3 if values == "few" else 60)
    ]
    board = Board(5, space=space_of(), objects=objects)
    held = [
        board.subscribe("half", "0.3*x + 0.7*y >= 2"),
        board.subscribe("disk", "within(place, circle(2, 2, 1.5))"),
    ]
    tests = [
        lambda at: at["x"] is not None and 0.3 * at["x"] + 0.7 * at["y"] >= 2,
        lambda at: at["x"] is not None and (at["x"] - 2) ** 2 + (at["y"] - 2) ** 2 <= 2.25,
    ]
    there = {row["id"]: row for row in objects}
    for name in list(there):
        value = 1.0 if values == "equal" else float(r.randint(0, 2))
        change = (name, value) if name % 3 else (name, None)
        there[name]["value"] = value
        if change[1] is None:
            del there[name]
        messages = board.update_many([change])
        for interest, test in zip(held, tests, strict=True):
            for message in messages:
                interest.receive(message)
            inside = sorted((row["value"], row["id"]) for row in there.values() if test(row))
            assert [(e.value, e.object) for e in interest.best] == inside[:5]


def test_places_on_the_earth_are_those_that_an_engine_matches():
    space = Space([Location("position", longitude="lon", latitude="lat"), Number("speed")])
    filters = {
        "pacific": "within(position, circle(179.9, 10, 300 km))",
        "pole": "distance(position, point(0, 89)) < 400 km and speed > 3",
        "road": "within(position, buffer('LINESTRING (170 8, -170 12)', 200 km))",
        "far": "not within(position, circle(0, 0, 15000 km))",
    }
    r = random.Random(5)
    engine, board = Engine(space), Board(3, space=space, descending=True)
    held = {}
    for name, text in filters.items():
        engine.subscribe(name, text)
        held[name] = board.subscribe(name, text)
    there = {}
    for turn in range(300):
        name, value = r.randrange(60), float(r.randint(0, 20))
        near = r.choice([(180, 10), (-180, 10), (0, 90), (120, 89), (175, 9)])
        at = {
            "lon": (near[0] + r.uniform(-3, 3) + 180) % 360 - 180,
            "lat": min(90.0, near[1] + r.uniform(-3, 3)),
            "speed": float(r.randint(0, 9)),
        }
        came = there[name][1] if name in there else turn
        there[name] = (value, came, at)
        for message in board.update_many([(name, value, at)]):
            for interest in held.values():
                interest.receive(message)
    matched = {name: set(engine.match(at)) for name, (_, _, at) in there.items()}
    for name, interest in held.items():
        inside = [
            (-value, came, one) for one, (value, came, _) in there.items() if name in matched[one]
        ]
        assert [entry.object for entry in interest.best] == [
            one for _, _, one in sorted(inside)[:3]
        ]
        assert interest.best


def test_tables_have_no_column_for_a_condition():
    objects = {
        "id": [1, 2],
        "x": [1.0, 5.0],
        "y": [1.0, 5.0],
        "v": [None, 2.0],
        "value": [3.0, 4.0],
    }
    interests = {"id": ["a", "b"], "filter": ["x + y < 4", "within(place, circle(5, 5, 1))"]}
    board = Board(1, space=space_of(), objects=objects, interests=interests)
    assert board.table().column_names == ["id", "x", "y", "v", "value", "arrival"]
    assert board.objects[1].position == {"x": 1.0, "y": 1.0, "v": None}
    messages = board.update_many({"id": [1, 2], "value": [4.0, None], "x": [None, None]})
    columns = messages.table().column_names
    assert columns[3:7] == ["x", "y", "v", "value"]
    assert {"place_low_from", "sums_high_to"} < set(columns)
    assert board.affected_interests(messages) == ["a", "b"]
    for position, says in (
        ({"place": 1}, "'place' is a point: an event has it as 'x' and 'y'"),
        ({"sums": 1}, "'sums' is arithmetic: events have no value for it"),
    ):
        with pytest.raises(RangecastError, match=says):
            board.add(9, position, 1)
    with pytest.raises(RangecastError, match="unknown column 'place'"):
        Board(1, space=space_of(), objects=objects | {"place": [1, 1]})
    with pytest.raises(RangecastError, match="unknown column 'place_lo'"):
        board.subscribe_many({"id": ["c"], "place_lo": [1]})


@pytest.mark.parametrize(
    ("attributes", "options", "says"),
    [
        ([Number("x"), String("word")], {}, "'word' is a string, whose words are numbered"),
        ([Number("x"), Text("word")], {}, "'word' is a string, whose words are numbered"),
        (
            [Point("place")],
            {"upper_bound_attribute": "x"},
            "'place', of type point, has conditions that aren't ranges",
        ),
        (
            [Number("x"), Arithmetic("sums")],
            {"upper_bound_attribute": "x"},
            "'sums', of type arithmetic, has conditions that aren't ranges",
        ),
    ],
)
def test_what_a_board_rejects(attributes, options, says):
    with pytest.raises(RangecastError, match=says):
        Board(1, space=Space(attributes), **options)
