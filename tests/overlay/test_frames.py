"""Frames between brokers, items of interest, and merging on links."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast import Engine, Integer, Space, String
from rangecast.errors import FrameError, UsageError
from rangecast.merge import Cells
from rangecast.model.boxes import Boxes
from rangecast.model.validation.inputs import as_filter
from rangecast.overlay import Broker, Settings
from rangecast.overlay.broker import ports
from rangecast.overlay.interest.items import (
    Batch,
    ResolvedItem,
    name_of,
    wanted_of,
    with_local_words,
)
from rangecast.overlay.interest.range_line import Curve
from rangecast.overlay.interest.routing_table import Table
from rangecast.overlay.interest.strategies import Merging, Options
from rangecast.overlay.wire import frames as messages
from rangecast.overlay.wire.packing import TERM, pack, unpack
from tests.support.examples import examples
from tests.support.overlay import QUIET, SPACE, Net

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
    | st.builds(messages.EventsAck, kept=CURSORS)
    | st.builds(messages.PropagationQuery, token=NAMES, incarnation=COUNTS, version=COUNTS)
    | st.builds(messages.PropagationReply, token=NAMES)
    | st.builds(messages.Reject, kind=NAMES, why=st.text(max_size=9))
    | st.builds(messages.Heartbeat, incarnation=COUNTS, version=COUNTS, digest=COUNTS, kept=CURSORS)
)


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
    assert said.frame == messages.Reject(kind="name", why="the peer is the broker 'x'")
    assert (alarm.kind, close.why) == ("name", "the peer is the broker 'x'")


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
        with pytest.raises(FrameError, match="a box has an invalid term"):
            with_local_words([messages.BoxItem(name_of(packed), packed)], SPACE, None)
    with pytest.raises(FrameError, match="terms of 22 bytes"):
        with_local_words([messages.BoxItem(7, b"x")], SPACE, None)


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
        table.change_items(Batch(SPACE, [ResolvedItem(item, None) for item in told.values()]), [])
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
