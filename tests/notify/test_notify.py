"""notify: every list right after every change, told to those concerned alone, in few messages."""

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.notify.baselines import unicast
from rangecast.kernels.bundle import Bundle
from rangecast.notify.base import groups_of
from rangecast.notify.messages import Outbox
from rangecast.notify.subscriber import Entry, Interest
from tests.support.examples import examples
from tests.support.notify import EXACT, make
from tests.support.notify_model import Model, boards, changes, fewest_rectangles, needed


def shown(entries):
    return [tuple(entry) for entry in entries]


def received(board_messages, lo, hi):
    return [m for m in board_messages if m.reaches(lo, hi)]


def assert_smallest(messages, interests):
    """Each message reaches somebody, and no smaller rectangle holds the same interests."""
    for message in messages:
        reached = [(lo, hi) for lo, hi in interests if message.reaches(lo, hi)]
        assert reached
        los, his = zip(*reached, strict=True)
        assert (message.left_inner, message.right_inner) == (max(los), min(his))
        assert message.left_outer == np.nextafter(min(los), -math.inf)
        assert message.right_outer == np.nextafter(max(his), math.inf)


@pytest.mark.conformance
@given(st.data(), st.integers(1, 4), st.sampled_from(EXACT))
def test_exact_lists_are_right_and_only_those_concerned_hear(data, k, how):
    objects, interests = data.draw(boards())
    algorithm, sketch = how
    board = make(k, objects, interests, algorithm=algorithm, sketch=sketch)
    model = Model(objects)
    held = [board[i] for i in range(len(interests))]
    for number, change in enumerate(data.draw(changes(objects))):
        before = [model.best(lo, hi, k) for lo, hi in interests]
        moved = len(change) == 3 and change[0] in model.objects
        messages = list(board.update_many([change]))
        model.change(*change)
        assert [(m.seq, m.ordinal) for m in messages] == [(number, p) for p in range(len(messages))]
        for place, (lo, hi) in enumerate(interests):
            mine = received(messages, lo, hi)
            after = model.best(lo, hi, k)
            if before[place] == after and not moved:
                assert not mine
            for message in mine:
                held[place].receive(message)
            assert shown(held[place].best) == after
            if not moved:
                assert len(mine) <= 2
                assert len({m.object for m in mine}) == len(mine)
            else:
                assert len(mine) <= 4
        if algorithm == "sparse" and sketch is None:
            assert_smallest(messages, interests)


@given(st.data(), st.integers(1, 5), st.sampled_from([1.0, 0.5, 0.3, 0.25]))
def test_approximate_ones_never_miss_and_stay_near(data, k, epsilon):
    """Theorem 7: a message is of an object ranked about k, or of one whose value changed."""
    objects, interests = data.draw(boards())
    algorithm = data.draw(st.sampled_from(["dense", "sparse"]))
    board = make(k, objects, interests, algorithm=algorithm, epsilon=epsilon)
    model = Model(objects)
    held = [board[i] for i in range(len(interests))]
    for change in data.draw(changes(objects)):
        name = change[0]
        old = Model()
        old.objects = dict(model.objects)
        messages = list(board.update_many([change]))
        model.change(*change)
        for place, (lo, hi) in enumerate(interests):
            for message in received(messages, lo, hi):
                held[place].receive(message)
                ranks = old.rank(message.object, lo, hi), model.rank(message.object, lo, hi)
                if message.object == name:
                    assert min(ranks) <= (1 + epsilon) * k
                elif name in old.objects and name in model.objects and len(change) == 2:
                    assert (1 - epsilon) * k <= ranks[1] <= (1 + epsilon) * k
            assert shown(held[place].best) == model.best(lo, hi, k)
        if algorithm == "sparse":
            assert_smallest(messages, interests)
        if len(change) == 2 and name in old.objects:
            by_object = {}
            for message in messages:
                by_object[message.object] = by_object.get(message.object, 0) + 1
            assert all(count <= groups_of(epsilon, k) for count in by_object.values())


@pytest.mark.conformance
@given(st.data(), st.integers(1, 4), st.sampled_from([*EXACT, ("dense", 0.5), ("sparse", 0.5)]))
def test_a_batch_sends_what_is_needed_in_order(data, k, how):
    objects, interests = data.draw(boards())
    algorithm, extra = how
    epsilon = extra if isinstance(extra, float) else None
    board = make(
        k,
        objects,
        interests,
        algorithm=algorithm,
        epsilon=epsilon,
        sketch=None if epsilon else extra,
    )
    model = Model(objects)
    held = [board[i] for i in range(len(interests))]
    for batch in data.draw(st.lists(st.just(None), min_size=1, max_size=4)):
        there = [(name, o[3], o[0]) for name, o in model.objects.items()]
        batch = data.draw(changes(there, most=8))
        before = Model()
        before.objects = dict(model.objects)
        one_by_one = data.draw(st.integers(0, 3)) == 0
        messages = list(board.update_many(batch) if one_by_one else board.update_batch(batch))
        places = {name: {o[3]} for name, o in before.objects.items()}
        for change in batch:
            model.change(*change)
            if len(change) == 3:
                places.setdefault(change[0], set()).add(change[2])
        if algorithm == "sparse" and board.sketch is None:
            assert_smallest(messages, interests)
        names = {c[0] for c in batch if before.objects.get(c[0]) != model.objects.get(c[0])}
        plain = all(len(places[name]) == 1 for name in names)  # nothing moved or came again
        again = any(
            before.objects.get(n) and model.objects.get(n) and before.objects[n][1] != o[1]
            for n, o in model.objects.items()
        )
        for place, (lo, hi) in enumerate(interests):
            mine = received(messages, lo, hi)
            for message in mine:
                held[place].receive(message)
            assert shown(held[place].best) == model.best(lo, hi, k)
            if not one_by_one and not epsilon and plain and not again:
                worse, others = needed(before, model, names, k, lo, hi)
                told = [m.object for m in mine]
                assert told[: len(worse)] == worse
                assert sorted(told[len(worse) :]) == sorted(others)
                assert all(
                    m.value == model.objects[m.object][0] for m in mine if m.value < math.inf
                )
    assert not len(board.mismatches(board.lists()))


@pytest.mark.parametrize("algorithm", ["dense", "sparse"])
def test_a_batch_takes_no_work_that_grows_with_the_objects(algorithm):
    """Theorem 6: a hundred times the objects, but none of them near, and the same batches."""
    rng = np.random.default_rng(2)
    near = [(i, float(x), float(y)) for i, (x, y) in enumerate(rng.random((300, 2)))]
    interests = [tuple(sorted(pair)) for pair in rng.random((200, 2)).tolist()]
    batches = [[(int(i), float(rng.random())) for i in rng.integers(0, 300, 20)] for _ in range(4)]
    found = []
    for more in (0, 30_000):
        far = [(1000 + i, 2.0 + i, 9.0) for i in range(more)]
        board = make(3, near + far, interests, algorithm=algorithm)
        board.update_batch(batches[0])  # once, the state before is copied
        start, sent = board.work, []
        tracemalloc.start()
        for batch in batches[1:]:
            sent += board.update_batch(batch)
        allocated = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        work = [now - then for now, then in zip(board.work, start, strict=True)]
        found.append((sent, work, allocated))
    assert found[0][:2] == found[1][:2]
    assert found[1][2] < found[0][2] + 10_000


@examples(80)
@given(st.data(), st.integers(1, 3), st.booleans())
def test_dense_sends_the_fewest_and_sparse_at_most_twice_the_fewest(data, k, every):
    objects, interests = data.draw(boards(most_objects=5, most_interests=9))
    change = data.draw(changes(objects, most=1))[0]
    if len(change) == 3 and change[0] in {name for name, _, _ in objects}:
        return  # a move is two updates
    if every:  # an interest for every set of objects that a range can hold
        places = {x for _, x, _ in objects} | set(change[2:])
        interests = [(lo, hi) for lo in places for hi in places if lo <= hi]
    sent = {}
    for algorithm in ("dense", "sparse"):
        board = make(k, objects, interests, algorithm=algorithm)
        sent[algorithm] = list(board.update_many([change]))
    for name in {m.object for m in sent["dense"]} | {m.object for m in sent["sparse"]}:
        counts = {a: sum(m.object == name for m in found) for a, found in sent.items()}
        heard = [m for m in sent["sparse"] if m.object == name]
        told = [(lo, hi) for lo, hi in interests if received(heard, lo, hi)]
        dense = [m for m in sent["dense"] if m.object == name]
        assert told == [(lo, hi) for lo, hi in interests if received(dense, lo, hi)]
        fewest = fewest_rectangles(told, set(interests) - set(told))
        assert fewest <= counts["sparse"] <= 2 * fewest
        if every:
            assert counts["dense"] == fewest


def test_equal_right_ends_are_one_rectangle():
    """Reading notes: k = 3, better objects at 5, 3, 1 in the west and none in the east."""
    board = make(3, [("a", 5, 0), ("b", 3, 0), ("c", 1, 0)], [], algorithm="dense")
    (message,) = board.add("i", 7, 1)
    assert (message.left_outer, message.left_inner) == (1, 7)
    assert (message.right_inner, message.right_outer) == (7, math.inf)


def test_an_exposed_object_goes_only_to_interests_that_hold_it():
    """The printed Algorithm 5 sends object 9 to [0, 8], which doesn't hold it."""
    objects = [("i", 5.0, 0.0), ("h", 9.0, 1.0), ("w", 2.0, 0.5)]
    board = make(1, objects, [(0, 8), (4, 9), (3, 7)], algorithm="dense")
    messages = list(board.set_value("i", 2.0))
    assert [m.object for m in received(messages, 0, 8)] == ["i", "w"]
    assert [m.object for m in received(messages, 4, 9)] == ["i", "h"]
    assert [m.object for m in received(messages, 3, 7)] == ["i"]


@pytest.mark.conformance
def test_a_small_outbox_gives_the_same_messages():
    rng = np.random.default_rng(5)
    objects = [(i, float(x), float(y)) for i, (x, y) in enumerate(rng.random((60, 2)))]
    interests = [tuple(sorted(pair)) for pair in rng.random((80, 2)).tolist()]
    steps = [
        (int(i), float(y)) for i, y in zip(rng.integers(0, 60, 80), rng.random(80), strict=True)
    ]
    for algorithm in ("dense", "sparse"):
        found = []
        for room in (4096, 16 + 2 * 3):
            board = make(3, objects, interests, algorithm=algorithm)
            board.engine._painter._out = Bundle(Outbox.of(room))
            found.append(
                ([*board.update_many(steps[:40])], [*board.update_batch(steps[40:])], board.work)
            )
        assert found[0] == found[1]


@pytest.mark.conformance
@pytest.mark.parametrize("shape", ["all equal", "one place", "nested", "falling"])
def test_hostile_shapes(shape):
    n = 40
    x = {"one place": [3.0] * n}.get(shape, [float(i) for i in range(n)])
    y = {"falling": [float(n - i) for i in range(n)]}.get(shape, [1.0] * n)
    interests = [(float(i) / 2, float(n - i / 2)) for i in range(n)]
    if shape == "all equal":
        interests = [(0.0, float(n))] * n
    objects = list(zip(range(n), x, y, strict=True))
    for algorithm in ("dense", "sparse"):
        board = make(4, objects, interests, algorithm=algorithm)
        lists = board.lists()
        for name in (0, n // 2, n - 1):
            for value in (0.0, 2.0, 1.0, 50.0, 1.0):
                lists.deliver(board.set_value(name, value))
                assert not len(board.mismatches(lists))
        lists.deliver(board.update_batch([(name, 60.0 - name) for name in range(0, n, 3)]))
        lists.deliver(board.update_batch([(name, None) for name in range(0, n, 2)]))
        assert not len(board.mismatches(lists))


def test_different_k_are_cut_at_the_subscriber():
    objects = [(i, float(i), float(10 - i)) for i in range(10)]
    board = make(4, objects, [(0, 9), (0, 9), (2, 5)], wanted=[1, None, 2])
    held = [board[i] for i in range(3)]
    for change in [(9, 20.0), (8, 30.0), (7, None), (3, 0.0)]:
        for message in board.update_many([change]):
            for interest in held:
                interest.receive(message)
    assert [len(i.best) for i in held] == [1, 4, 2]
    assert held[0].best == held[1].best[:1]
    for interest in held:
        assert interest.best == board.best(interest.lo, interest.hi, k=interest.k)


def test_a_message_is_applied_once_and_only_where_it_goes():
    board = make(2, [("a", 1.0, 1.0), ("b", 2.0, 2.0)], [(0, 1), (0, 2)])
    near, wide = board[0], board[1]
    (message,) = board.set_value("b", 0.0)
    assert not near.receive(message)
    assert wide.receive(message)
    assert not wide.receive(message._replace(value=5.0))
    assert [e.object for e in wide.best] == ["b", "a"]
    fresh = Interest(0, 2, 1, entries=[Entry(1.0, 0, "a", 1.0)])
    assert fresh.receive(message)


def test_interests_come_and_go():
    board = make(2, [(i, float(i), float(i)) for i in range(9)], [(0, 3)], sketch=2)
    held = {i: board.subscribe(10 + i, i % 5, 5 + i % 4, k=1 + i % 2) for i in range(12)}
    held[99] = board.subscribe(99)
    for i in (2, 5):
        board.unsubscribe(10 + i)
        del held[i]
    held[7] = board.replace(17, 1, 8)
    assert (held[7].lo, held[7].hi, held[7].k) == (1, 8, 2)
    assert board.replace_many([{"id": 18, "position_lo": None, "position_hi": 3, "k": 1}]) == 1
    assert (
        board.subscribe_many({"id": [50, 51], "position_lo": [0, 4], "position_hi": [5, None]}) == 2
    )
    assert board.unsubscribe_many([50, 50]) == 1
    held |= {8: board[18], 51: board[51]}
    assert (held[8].hi, held[8].k) == (3, 1)
    assert list(board)[:3] == [0, 10, 11]
    assert list(board).index(17) < list(board).index(18) < list(board).index(99)
    for change in [(0, 7.5), (8, 0.5), (4, None), (3, 9.0, 0.5), (20, 0.1, 6.5)]:
        for message in board.update_many([change]):
            for interest in held.values():
                interest.receive(message)
    for interest in held.values():
        assert interest.best == board.best(interest.lo, interest.hi, k=interest.k)


@pytest.mark.parametrize("by_staircase", [False, True])
def test_unicast_tells_the_same_lists(by_staircase):
    rng = np.random.default_rng(9)
    objects = [(i, float(x), float(y)) for i, (x, y) in enumerate(rng.random((50, 2)))]
    interests = [tuple(sorted(pair)) for pair in rng.random((200, 2)).tolist()]
    slots, ys = rng.integers(0, 50, 60).astype(np.int32), rng.random(60)
    board = make(3, objects, interests, algorithm="dense")
    twin = make(3, objects, interests)
    told, letters = unicast(
        twin.engine.objects, twin.engine.tree, slots, ys, 3, by_staircase=by_staircase, room=100_000
    )
    sent = list(zip(letters.event, letters.row, letters.slot, letters.y, strict=True))
    painted = [
        (m.seq, row, m.object, m.value)
        for m in board.update_many(zip(slots.tolist(), ys.tolist(), strict=True))
        for row, (lo, hi) in enumerate(interests)
        if m.reaches(lo, hi)
    ]
    assert sorted(sent) == sorted(painted)
    assert told.sent == len(sent)
    assert told.received == sum(slots[event] == slot for event, _, slot, _ in sent)
    assert told.received <= told.looked_at
