"""Brokers without faults, their frames, and what they reject."""

from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast import Engine, Integer, Space, String
from rangecast.errors import FrameError, RangecastError, UsageError
from rangecast.merge import Cells
from rangecast.model.boxes import Boxes
from rangecast.model.validation.inputs import as_filter
from rangecast.overlay import Broker, Settings
from rangecast.overlay.broker import ports
from rangecast.overlay.broker.link_state import Flight
from rangecast.overlay.interest.items import (
    EVERYTHING,
    Batch,
    Wanted,
    name_of,
    understood,
    wanted_of,
)
from rangecast.overlay.interest.range_line import Curve
from rangecast.overlay.interest.routing_table import Table
from rangecast.overlay.interest.strategies import STRATEGIES, Merging, Options
from rangecast.overlay.wire import frames as messages
from rangecast.overlay.wire.packing import TERM, pack, unpack
from tests.support.examples import examples

SPACE = Space([Integer("x", min=0, max=63), Integer("y", min=0, max=63)])
QUIET = Settings(heartbeat_interval=None, withdraw_delay=0)
NAMES = st.text("abc", min_size=1, max_size=3)
COUNTS = st.integers(0, 2**63 - 1)
CURSORS = st.dictionaries(NAMES, COUNTS, max_size=2)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
ITEMS = st.lists(
    st.builds(messages.RangeItem, COUNTS, COUNTS, st.integers(0, 2**64 - 1))
    | st.builds(messages.TextItem, COUNTS, st.text())
    | st.builds(
        messages.BoxItem,
        COUNTS,
        st.lists(
            st.lists(st.tuples(st.integers(0, 3), FLOATS, FLOATS), max_size=2), max_size=2
        ).map(pack)
        | st.binary(max_size=50),
    ),
    max_size=3,
)
FRAMES = (
    st.builds(
        messages.Hello,
        broker=NAMES,
        incarnation=COUNTS,
        space=NAMES,
        kept=CURSORS,
        reach=st.lists(NAMES, max_size=2),
        seen=COUNTS,
    )
    | st.builds(
        messages.Interest,
        incarnation=COUNTS,
        before=COUNTS,
        version=COUNTS,
        digest=COUNTS,
        added=ITEMS,
        removed=st.lists(COUNTS, max_size=2),
    )
    | st.builds(
        messages.Snapshot,
        incarnation=COUNTS,
        version=COUNTS,
        digest=COUNTS,
        part=st.integers(0, 2),
        parts=st.integers(1, 2),
        items=ITEMS,
    )
    | st.builds(
        messages.Resync, version=COUNTS, why=st.sampled_from(["gap", "digest", "incarnation"])
    )
    | st.builds(
        messages.Events,
        origin=NAMES,
        after=st.integers(0, 3),
        upto=st.integers(0, 9),
        numbers=st.lists(st.integers(0, 9), max_size=2),
        ids=st.lists(st.integers(0, 9) | NAMES, max_size=2),
        points=st.binary(max_size=40),
        words=st.dictionaries(NAMES, st.lists(NAMES), max_size=1),
        priorities=st.lists(FLOATS, max_size=2),
        hops=COUNTS,
    )
    | st.builds(messages.Taken, kept=CURSORS)
    | st.builds(messages.PropagationQuery, token=NAMES, incarnation=COUNTS, version=COUNTS)
    | st.builds(messages.PropagationReply, token=NAMES)
    | st.builds(messages.Reject, kind=NAMES, why=st.text(max_size=9))
    | st.builds(messages.Heartbeat, incarnation=COUNTS, version=COUNTS, digest=COUNTS, kept=CURSORS)
)


class Net:
    """Brokers that hear one another at once, and lose nothing."""

    def __init__(
        self, ways, strategy="covering", settings=QUIET, cells=None, spaces=None, words=None
    ):
        self.got = {}
        self.sent = []
        self.others = []
        self.brokers = {
            name: Broker(
                name,
                spaces[name] if spaces else SPACE,
                strategy=strategy,
                cells=cells or Cells.uniform(SPACE, 4),
                words=words,
                max_ranges=4,
                cover_index="scan",
                settings=settings,
            )
            for name in ways
        }
        for name, others in ways.items():
            for other in others:
                self.do(name, ports.LinkUp(other))
        for name, others in ways.items():  # those that came up first were heard by nobody
            for other in others:
                self.do(name, ports.LinkUp(other))

    def do(self, name, given, now=0.0):
        todo = deque([(name, given)])
        while todo:
            name, given = todo.popleft()
            for output in self.brokers[name].handle(now, given):
                if isinstance(output, ports.Send):
                    self.sent.append((name, output.link, output.frame))
                    frame = messages.decode(messages.encode(output.frame))
                    assert frame == output.frame
                    todo.append((output.link, ports.Received(name, frame)))
                elif isinstance(output, ports.Append):
                    todo.append((name, ports.Durable(output.at + len(output.block))))
                elif isinstance(output, ports.Deliver):
                    for event, ids in zip(output.block.ids, output.matches, strict=True):
                        self.got.setdefault(event, []).extend(ids)
                else:
                    self.others.append((name, output))


FIVE = {"a": "b", "b": "acd", "c": "b", "d": "be", "e": "d"}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_delivers_what_an_engine_matches(strategy):
    rng = np.random.default_rng(1)
    net, engine, live = Net(FIVE, strategy), Engine(SPACE), {}
    for turn in range(120):
        kind = rng.random() if live else 1
        low = rng.integers(0, 48, 2)
        high = low + rng.integers(0, 16, 2)
        text = f"x between {low[0]} and {high[0]} and y between {low[1]} and {high[1]}"
        one = list(live)[rng.integers(len(live))] if live else None
        if kind < 0.35:
            engine.unsubscribe(one)
            net.do(live.pop(one), ports.Unsubscribe([one]))
        elif kind < 0.5:
            engine.replace(one, text)
            net.do(live[one], ports.Replace({one: text}))
        else:
            live[turn] = "abcde"[rng.integers(5)]
            engine.subscribe(turn, text)
            net.do(live[turn], ports.Subscribe({turn: text}))
        points = rng.integers(0, 64, (3, 2)).astype(float)
        ids = [f"{turn}.{row}" for row in range(3)]
        net.do("abcde"[rng.integers(5)], ports.Publish(points, ids=ids))
        for event, matched in zip(ids, engine.match_points(points), strict=True):
            assert sorted(net.got.get(event, [])) == sorted(matched)
    many = {1000 + row: f"x = {row} and y < {row}" for row in range(1, 40)}
    net.do("c", ports.Subscribe(many))
    net.do("e", ports.Publish(np.array([[7.0, 3.0]]), ids=["last"]))
    assert 1007 in net.got["last"]
    assert not [output for _, output in net.others if isinstance(output, ports.Alarm)]


def test_what_covers_hides_nothing_from_the_link_that_it_came_over():
    net = Net({"a": "b", "b": "a"})
    net.do("a", ports.Subscribe({1: "x < 10"}))
    net.do("b", ports.Subscribe({2: "x < 20"}))
    assert len(net.brokers["b"].links["a"].received.items) == 1
    net.do("b", ports.Publish([{"x": 5, "y": 5}], ids=[0]))
    assert sorted(net.got[0]) == [1, 2]


def test_words_are_numbered_by_each_broker_for_itself():
    spaces = {name: Space([Integer("x"), String("word")]) for name in "abc"}
    net = Net({"a": "b", "b": "ac", "c": "b"}, spaces=spaces, cells=None)
    net.do("a", ports.Subscribe({1: "word = 'up'", 2: "word != 'down' and x > 3"}))
    net.do("c", ports.Subscribe({3: "word in ('down', 'up')", 4: "word is null"}))
    for number, word in enumerate(["up", "down", "else", None]):
        net.do("c", ports.Publish([{"x": 9, "word": word}], ids=[number]))
    assert {event: sorted(ids) for event, ids in net.got.items()} == {
        0: [1, 2, 3],
        1: [3],
        2: [2],
        3: [4],
    }


def test_settled_comes_when_the_last_broker_knows():
    net = Net(FIVE)
    net.do("c", ports.Subscribe({1: "x < 10"}))
    net.do("c", ports.AskPropagated("mine"))
    assert ("c", ports.IsPropagated("mine")) in net.others
    asked = [way for *way, frame in net.sent if isinstance(frame, messages.PropagationQuery)]
    assert sorted(asked) == [["b", "a"], ["b", "d"], ["c", "b"], ["d", "e"]]
    alone = Broker("alone", SPACE)
    assert alone.handle(0, ports.AskPropagated("now")) == [ports.IsPropagated("now")]


def test_a_link_with_another_space_is_rejected_with_both_digests():
    spaces = {"a": SPACE, "b": Space([Integer("x", min=0, max=64), Integer("y", min=0, max=63)])}
    net = Net({"a": "b", "b": "a"}, spaces=spaces)
    closed = [output for _, output in net.others if isinstance(output, ports.Close)]
    digests = [broker._space_digest for broker in net.brokers.values()]
    assert closed
    assert all(digest in closed[0].why for digest in digests)


def test_a_guessed_space_is_that_of_somebody_who_wrote_it_down():
    guessed = Space.infer({"id": ["e"], "x": [1], "y": [2]})
    assert guessed.guesses
    spaces = {"a": guessed, "b": Space(guessed.attributes)}
    net = Net({"a": "b", "b": "a"}, "none", spaces=spaces)
    assert not [output for _, output in net.others if isinstance(output, ports.Close)]


def test_ranges_fall_back_to_boxes_where_cells_differ():
    net = Net({"a": "b", "b": "a"}, "merging")
    net.brokers["c"] = Broker("c", SPACE, strategy="merging", cells=Cells.uniform(SPACE, 3))
    for name, other in ("b", "c"), ("c", "b"), ("b", "c"):
        net.do(name, ports.LinkUp(other))
    net.do("a", ports.Subscribe({1: "x < 10 and y >= 0"}))
    net.do("c", ports.Subscribe({2: "x >= 0 and y < 10"}))
    kinds = {}
    for one, other in ("ab", "ba", "bc", "cb"):
        heard = net.brokers[one].links[other].received.items.values()
        kinds[one + other] = {type(item) for item in heard}
    ranges, boxes = {messages.RangeItem}, {messages.BoxItem}
    assert kinds == {"ab": ranges, "ba": ranges, "bc": boxes, "cb": boxes}
    assert len(net.brokers["c"].links["b"].received.items) == 1
    (told,) = net.brokers["c"].links["b"].received.items.values()
    assert told.boxes == EVERYTHING.boxes  # ranges of other cells: more, never less
    net.do("c", ports.Publish([{"x": 5, "y": 50}], ids=[0]))
    assert net.got == {0: [1]}


def test_more_items_than_a_neighbour_may_be_told_are_everything():
    net = Net(
        {"a": "b", "b": "a"},
        settings=Settings(heartbeat_interval=None, withdraw_delay=0, max_advertised=2),
    )
    for number in range(4):
        net.do("a", ports.Subscribe({number: f"x = {number}"}))
        told = net.brokers["b"].links["a"].received.items
        assert (list(told) == [EVERYTHING.name]) == (number >= 2)
    net.do("a", ports.Unsubscribe([1, 2]))
    assert len(net.brokers["b"].links["a"].received.items) == 2


def test_an_event_that_was_there_before_it_was_sent_makes_room_for_the_next():
    net = Net({"a": "b", "b": "a"})
    link = net.brokers["a"].links["b"]
    link.taken = {"a": 5}
    link.flights.append(Flight(0, "a", 5, 1, 0))
    link.in_flight = 1
    assert link.confirm({"a": 5}, "a")
    assert link.in_flight == 0
    assert not link.confirm({"a": 5}, "a")


def test_an_event_that_took_too_many_links_stops():
    net = Net(FIVE, settings=Settings(heartbeat_interval=None, withdraw_delay=0, max_hops=2))
    net.do("e", ports.Subscribe({1: "x >= 0"}))
    net.do("b", ports.Publish([{"x": 1}], ids=["near"]))
    net.do("a", ports.Publish([{"x": 1}], ids=["far"]))
    assert list(net.got) == ["near"]
    assert [output.kind for _, output in net.others if isinstance(output, ports.Alarm)] == ["hops"]


def test_a_link_that_closes_a_cycle_is_rejected():
    net = Net({"a": "b", "b": "ac", "c": "b"})
    for name, other in ("a", "c"), ("c", "a"):
        net.do(name, ports.LinkUp(other))
    assert {output.kind for _, output in net.others if isinstance(output, ports.Alarm)} == {"cycle"}
    assert "c" not in net.brokers["a"].links


def test_wrong_arguments_change_nothing():
    broker = Broker("a", SPACE)
    broker.handle(0, ports.Subscribe({1: "x < 5"}))
    for wrong in (
        ports.Subscribe({1: "x < 6"}),
        ports.Subscribe({2: "z < 6"}),
        ports.Replace({3: "x < 6"}),
        ports.Unsubscribe([4]),
        ports.Unsubscribe("1"),
        ports.Publish([{"x": 1}], ids=[1, 2]),
        ports.Publish([{"x": 1}], ids=[1.5]),
        ports.Publish([{"x": 1}], ids=[1 << 70]),
        ports.Publish([{"x": 1}], priorities=[float("nan")]),
        ports.LinkUp(""),
    ):
        with pytest.raises(RangecastError):
            broker.handle(0, wrong)
    (output,) = broker.handle(0, ports.Publish([{"x": 1}]))
    delivered = broker.handle(0, ports.Durable(1))
    assert output.block.ids == [0]
    assert [one.matches for one in delivered] == [[[1]]]
    for options in (
        {"strategy": "all"},
        {"strategy": "merging"},
        {"incarnation": 0},
        {"cover_index": "all"},
        {"cells": Cells.uniform(Space([*SPACE, Integer("z", min=0, max=1)]), 2)},
        {"name": ""},
        {"name": "a" * 201},
    ):
        with pytest.raises(UsageError):
            Broker(**{"name": "a", "space": SPACE} | options)
    for wrong in (
        {"max_items": 0},
        {"window": 0},
        {"heartbeat_interval": 0},
        {"withdraw_delay": -1},
    ):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            Settings(**wrong)


def test_subscriptions_that_come_and_go_leave_nothing():
    broker = Broker("a", SPACE)
    for number in range(50):
        broker.handle(0, ports.Subscribe({number: "x < 5"}))
        broker.handle(0, ports.Unsubscribe([number]))
    assert not broker._clients._late


# ---- frames


@given(FRAMES)
@examples(60)
def test_a_frame_comes_back_from_both_forms(frame):
    assert messages.decode(messages.encode(frame)) == frame
    assert messages.decode_json(messages.encode_json(frame)) == frame


@given(st.binary(max_size=60) | st.tuples(FRAMES.map(messages.encode), st.data()))
@examples(150)
def test_whatever_comes_in_is_a_frame_or_a_frame_error(given_bytes):
    if isinstance(given_bytes, tuple):
        data, draw = bytearray(given_bytes[0]), given_bytes[1]
        for _ in range(2):
            data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
        given_bytes = bytes(data)
    for decode in (messages.decode, messages.decode_json):
        try:
            decode(given_bytes)
        except FrameError:
            continue


@given(st.lists(FRAMES | st.binary(max_size=20), max_size=8))
@examples(100)
def test_no_frame_makes_a_broker_fail(frames):
    broker = Broker("z", SPACE, cells=Cells.uniform(SPACE, 4), cover_index="scan")
    broker.handle(0, ports.LinkUp("y"))
    greeting = messages.Hello(broker="y", incarnation=1, space=broker._space_digest)
    broker.handle(0, ports.Received("y", greeting))
    broker.handle(0, ports.Subscribe({1: "x < 5"}))
    for now, frame in enumerate(frames):
        broker.handle(now, ports.Received("y", frame))
        broker.handle(now, ports.Tick())
        broker.handle(now, ports.Durable(broker.log.end))
    assert broker.handle(99, ports.Publish([{"x": 1}]))
    broker.handle(99, ports.Durable(broker.log.end))


def test_events_that_are_said_to_be_there_and_are_not_are_rejected():
    net = Net({"a": "b", "b": "ac", "c": "b"})
    net.do("c", ports.Subscribe({1: "x >= 0"}))
    points = np.zeros(2).tobytes()
    for after, upto, numbers in ((0, 5, [5]), (0, 6, [3])):
        frame = messages.Events(
            origin="o", after=after, upto=upto, numbers=numbers, ids=numbers, points=points
        )
        net.do("b", ports.Received("a", frame))
    assert net.brokers["b"].counts["frames rejected"] == 1
    net.do("a", ports.Publish([{"x": 1}], ids=["last"]))
    assert list(net.got) == [5, "last"]


def test_an_item_under_the_name_of_another_one_is_rejected():
    net = Net({"a": "b", "b": "a"})
    heard = net.brokers["b"].links["a"].received
    item = messages.BoxItem(7, pack([[(0, 1.0, 2.0)]]))
    frame = messages.Interest(
        incarnation=1, before=heard.version, version=heard.version + 1, digest=7, added=[item]
    )
    net.do("b", ports.Received("a", frame))
    assert net.brokers["b"].counts["frames rejected"] == 1
    assert not heard.items


def test_a_broker_of_another_name_is_rejected():
    broker = Broker("z", SPACE)
    broker.handle(0, ports.LinkUp("y"))
    greeting = messages.Hello(broker="x", incarnation=1, space=broker._space_digest)
    alarm, said, close, *_ = broker.handle(0, ports.Received("y", greeting))
    assert said.frame == messages.Reject(kind="name", why="the broker there is 'x'")
    assert (alarm.kind, close.why) == ("name", "the broker there is 'x'")


def test_a_question_before_the_first_hello_is_asked_after_it():
    broker = Broker("z", SPACE, settings=QUIET)
    broker.handle(0, ports.LinkUp("y"))
    broker.handle(0, ports.AskPropagated("t"))
    greeting = messages.Hello(broker="y", incarnation=1, space=broker._space_digest)
    accepted, *out = broker.handle(0, ports.Received("y", greeting))
    assert accepted == ports.Accepted("y", "")
    sent = [one.frame for one in out]
    assert [type(one) for one in sent if isinstance(one, messages.PropagationQuery)] == [
        messages.PropagationQuery
    ]


def test_a_frame_that_is_too_long_is_rejected():
    with pytest.raises(FrameError, match="at most 10 bytes; given: 11"):
        messages.decode(b"x" * 11, max_bytes=10)


# ---- items


def test_subscriptions_of_a_table_are_the_same_items_as_their_filters():
    space = Space([Integer("x"), String("word")])
    texts = ["x < 5", "x in (1, 3, 9)", "word = 'up' and x > 3", "x is null", "x >= 0 or x is null"]
    table = [{"id": number, "filter": text} for number, text in enumerate(texts)]
    one, other = Broker("a", space), Broker("a", space)
    one.handle(0, ports.Subscribe(table))
    other.handle(0, ports.Subscribe(dict(enumerate(texts))))
    assert one._sources.wanted == other._sources.wanted
    for wanted in one._sources.wanted.values():
        assert pack(unpack(wanted.boxes)) == wanted.boxes
    for broker in one, other:
        broker.handle(0, ports.Publish([{"x": 3, "word": "up"}, {"word": "down"}]))
    (here,), (there,) = (
        [out for out in broker.handle(0, ports.Durable(2)) if isinstance(out, ports.Deliver)]
        for broker in (one, other)
    )
    assert [*here.matches] == [*there.matches] == [[0, 1, 4], [3, 4]]
    for lo, hi, wrong in ([[1, -np.inf], [2, np.inf], "duplicate"], [[1, 7], [2, 7], "words"]):
        boxes = Boxes.of([lo, lo], [hi, hi], ids=[9, 9])
        with pytest.raises(UsageError, match=wrong):
            one.handle(0, ports.Subscribe(boxes))


def test_items_in_terms_that_no_box_has_are_rejected():
    good = (0, 0, 1.0, 2.0)
    wrong = [
        [(1, 0, 1.0, 2.0)],  # no box 0
        [good, (2, 0, 1.0, 2.0)],
        [good, good],  # twice the same attribute
        [(0, 1, 1.0, 2.0), good],
        [(0, 2, 1.0, 2.0)],  # an attribute too many
        [(0, 0, 2.0, 1.0)],
        [(0, 0, float("nan"), 1.0)],
        [(0, 0, 1.0, float("inf"))],
    ]
    for terms in wrong:
        packed = np.array(terms, TERM).tobytes()
        with pytest.raises(FrameError, match="a box has a term"):
            understood([messages.BoxItem(name_of(packed), packed)], SPACE, None)
    with pytest.raises(FrameError, match="terms of 22 bytes"):
        understood([messages.BoxItem(7, b"x")], SPACE, None)


# ---- merging


def test_ranges_of_words_mean_the_same_at_brokers_that_number_them_differently():
    space = [Integer("x", min=0, max=63), Integer("y", min=0, max=63), String("word")]
    spaces = {name: Space(space) for name in "abc"}
    cells = Cells.uniform(SPACE, 6, ["x"])
    for strategy in ("merging", "both"):
        net = Net(
            {"a": "b", "b": "ac", "c": "b"}, strategy, spaces=spaces, cells=cells, words="word"
        )
        wanted = {
            n: f"word in ('{word}', '{word}s') and x < {9 * n}" for n, word in enumerate("pqr", 1)
        }
        net.do("a", ports.Subscribe(wanted))
        net.do("a", ports.Subscribe({4: "y < 3", 5: "word != 'p' and x < 2"}))
        net.do("b", ports.Subscribe({6: "word = 'r' and x = 20"}))
        kinds = {type(item) for item in net.brokers["c"].links["b"].received.items.values()}
        boxes = {messages.BoxItem, messages.TextItem}
        assert kinds == boxes | {messages.RangeItem}
        events = [{"x": x, "y": 9, "word": word} for x in (1, 20) for word in ("p", "rs", "z", "r")]
        events.append({"x": 1, "y": 1})
        net.do("c", ports.Publish(events, ids=list(range(len(events)))))
        engine = Engine(Space(space))
        for one, text in (wanted | {4: "y < 3", 5: "word != 'p' and x < 2"}).items():
            engine.subscribe(one, text)
        engine.subscribe(6, "word = 'r' and x = 20")
        right = {n: sorted(ids) for n, ids in enumerate(engine.match_many(events)) if ids}
        assert {event: sorted(ids) for event, ids in net.got.items()} == right
        assert "z" not in net.brokers["b"].space["word"].codes
    with pytest.raises(UsageError, match="a string attribute"):
        Broker("a", SPACE, strategy="merging", cells=cells, words="y")


def test_merging_tells_what_ranges_lack_and_cuts_them_past_the_budget():
    cells = Cells.uniform(SPACE, 6)
    options = Options("merging", cells, Curve(SPACE, cells), 4)
    one, told = Merging(SPACE, options, {}), {}
    rng = np.random.default_rng(3)
    live = []
    for turn in range(60):
        x, y = rng.integers(0, 60, 2).tolist()
        new = wanted_of(
            as_filter(f"x between {x} and {x + 3} and y between {y} and {y + 3}", SPACE)
        )
        fresh = [new] if new not in live else []
        gone = [live.pop(0)] if turn % 3 == 2 else []
        live += fresh
        change = one.change(Batch(SPACE, fresh), Batch(SPACE, gone))
        for item in change.added:
            assert item.name not in told
            told[item.name] = item
        for name in change.removed:
            del told[name]
        assert len(told) <= 4
        points = np.array([[x, y] for x in range(64) for y in range(64)], np.float64)
        table, exact = Table(SPACE, options.curve), Table(SPACE)
        table.change_items(Batch(SPACE, [Wanted(item, None) for item in told.values()]), [])
        exact.change_items(Batch(SPACE, live), [])
        assert (table.holds(points) >= exact.holds(points)).all()
    assert told


def test_what_is_new_waits_for_more_unless_somebody_asks_whether_it_is_known():
    broker = Broker(
        "z", SPACE, settings=Settings(heartbeat_interval=None, withdraw_delay=0, batch_delay=5)
    )
    broker.handle(0, ports.LinkUp("y"))
    greeting = messages.Hello(broker="y", incarnation=1, space=broker._space_digest, seen=1)
    broker.handle(0, ports.Received("y", greeting))
    assert broker.handle(1, ports.Subscribe({1: "x < 5"})) == [ports.Timer(6.0)]
    assert not broker.handle(3, ports.Subscribe({2: "y < 5"}))
    assert not broker.handle(4, ports.Unsubscribe([1]))
    assert not broker.handle(4, ports.Subscribe({3: "y < 9"}))
    (sent,) = broker.handle(6, ports.Tick())
    assert len(sent.frame.added) == 2
    assert not sent.frame.removed
    broker.handle(7, ports.Subscribe({4: "x > 60"}))
    told, asked = broker.handle(8, ports.AskPropagated("known?"))
    assert len(told.frame.added) == 1
    assert asked.frame.version == told.frame.version
