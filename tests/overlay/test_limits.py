"""Bounds of a broker: frames, memory, what a link can take; and frames in an unusual order."""

import numpy as np
import pytest

from rangecast import Space, String
from rangecast.errors import FrameError, UsageError
from rangecast.overlay import Broker, Settings
from rangecast.overlay.broker import event_log, ports, publishing
from rangecast.overlay.broker import interest as broker_interest
from rangecast.overlay.interest import items
from rangecast.overlay.interest.items import EVERYTHING, Batch, name_of, with_local_words
from rangecast.overlay.interest.routing_table import Table
from rangecast.overlay.wire import frames
from rangecast.overlay.wire.packing import pack
from tests.support.overlay import QUIET, SPACE, Net


def test_a_link_that_can_not_take_all_sheds_the_lowest_first():
    quiet = {"heartbeat_interval": None, "withdraw_delay": 0}
    net = Net({"a": "b", "b": "a"}, settings=Settings(**quiet, max_waiting=1, window=1))
    net.do("b", ports.Subscribe({1: "x >= 0"}))
    points = np.zeros((5, 2))
    publish = ports.Publish(points, ids=list("vwxyz"), priorities=[1, 5, 0, 5, 9])
    net.do("a", publish)
    assert list(net.got) == ["w", "z"]
    assert net.brokers["a"].counts["events dropped"] == 3
    # What a link can take at once doesn't wait, so none of it is dropped.
    net = Net({"a": "b", "b": "a"}, settings=Settings(**quiet, max_waiting=0, window=5))
    net.do("b", ports.Subscribe({1: "x >= 0"}))
    net.do("a", publish)
    assert list(net.got) == list("vwxyz")
    assert not net.brokers["a"].counts["events dropped"]


def two_of_three():
    """Return broker b between a and c, whose frames go nowhere by themselves."""
    broker = Broker("b", SPACE, settings=QUIET, cover_index="scan")
    for name in "ac":
        hello = frames.Hello(broker=name, incarnation=1, space=broker._space_digest, seen=1)
        broker.handle(0.0, ports.LinkUp(name))
        broker.handle(0.0, ports.Received(name, hello))
    return broker


def sent_by(outputs, kind):
    return [
        (o.link, o.frame)
        for o in outputs
        if isinstance(o, ports.Send) and isinstance(o.frame, kind)
    ]


def test_a_question_that_comes_before_its_interest_waits_for_it():
    broker = two_of_three()
    settle = frames.PropagationQuery(token="t", incarnation=1, version=1)
    assert not sent_by(broker.handle(0.0, ports.Received("a", settle)), frames.PropagationQuery)
    item = frames.BoxItem(name_of(box := pack([[(0, 1.0, 2.0)]])), box)
    frame = frames.Snapshot(incarnation=1, version=1, digest=item.name, items=[item])
    out = broker.handle(0.0, ports.Received("a", frame))
    (told,) = sent_by(out, frames.Interest)
    (asked,) = sent_by(out, frames.PropagationQuery)
    assert (told[0], asked[0], asked[1].token) == ("c", "c", "t")
    assert asked[1].version == told[1].version
    assert [type(o.frame) for o in out if isinstance(o, ports.Send)][-1] is frames.PropagationQuery


def test_an_event_that_comes_a_second_time_before_it_is_on_disk_is_confirmed_to_both():
    broker = two_of_three()
    frame = frames.Events(origin="z", after=0, upto=1, numbers=[1], ids=[1], points=bytes(16))
    broker.handle(0.0, ports.Received("a", frame))
    out = broker.handle(0.0, ports.Received("c", frame))
    assert sent_by(out, frames.EventsAck) == [("c", frames.EventsAck(kept={"z": 0}))]
    out = broker.handle(0.0, ports.Durable(1))
    taken = frames.EventsAck(kept={"z": 1})
    assert sent_by(out, frames.EventsAck) == [("a", taken), ("c", taken)]


def test_a_link_that_was_accepted_isn_t_forgotten_when_it_is_rejected():
    broker = two_of_three()
    item = frames.BoxItem(name_of(box := pack([[(0, 1.0, 2.0)]])), box)
    frame = frames.Snapshot(incarnation=1, version=1, digest=item.name, items=[item])
    broker.handle(0.0, ports.Received("a", frame))
    hello = frames.Hello(broker="a", incarnation=1, space=broker._space_digest, reach=["c"])
    out = broker.handle(0.0, ports.Received("a", hello))
    assert any(isinstance(one, ports.Close) for one in out)
    assert list(broker.links["a"].received.items) == [item.name]


def test_a_log_is_held_for_a_link_that_is_down_up_to_a_bound():
    net = Net(
        {"a": "b", "b": "a"},
        settings=Settings(heartbeat_interval=None, withdraw_delay=0, max_held=10),
    )
    net.do("b", ports.Subscribe({1: "x >= 0"}))
    net.do("a", ports.LinkDown("b"))
    net.do("b", ports.LinkDown("a"))
    for number in range(300):
        net.do("a", ports.Publish(np.zeros((1, 2)), ids=[number]))
    log = net.brokers["a"].log
    assert sum(len(block) for _, block in log.between(0, log.end)) < 100  # dropped some at a time
    dropped = [one for _, one in net.others if isinstance(one, ports.Dropped)]
    assert [number for one in dropped for number in one.numbers] == list(range(1, 291))
    assert net.brokers["a"].counts["events dropped"] == 290
    for name, other in ("ab", "ba", "ab"):
        net.do(name, ports.LinkUp(other))
    assert list(net.got) == list(range(290, 300))


ALL = frames.Snapshot(incarnation=1, version=0, digest=EVERYTHING.name, items=[EVERYTHING])


def greeted(*, kept=None, **settings):
    """A broker whose neighbour has said Hello."""
    broker = Broker(
        "b", SPACE, settings=Settings(heartbeat_interval=None, withdraw_delay=0, **settings)
    )
    hello = frames.Hello(
        broker="a", incarnation=1, space=broker._space_digest, seen=1, kept=kept or {}
    )
    broker.handle(0.0, ports.LinkUp("a"))
    return broker, broker.handle(0.0, ports.Received("a", hello))


def numbers_sent(outputs):
    return [frame.numbers for _, frame in sent_by(outputs, frames.Events)]


def test_a_neighbour_gets_nothing_before_it_said_what_it_wants():
    broker, _ = greeted()
    broker.handle(0.0, ports.Publish(np.zeros((3, 2))))
    assert numbers_sent(broker.handle(0.0, ports.Durable(3))) == []
    assert numbers_sent(broker.handle(0.0, ports.Received("a", ALL))) == [[1, 2, 3]]


def test_a_neighbour_that_lost_its_disk_goes_on_with_what_comes():
    broker, _ = greeted()
    broker.handle(0.0, ports.Received("a", ALL))
    broker.handle(0.0, ports.Publish(np.zeros((3, 2))))
    broker.handle(0.0, ports.Durable(3))
    broker.handle(0.0, ports.Received("a", frames.EventsAck(kept={"b": 3})))
    again = frames.Hello(broker="a", incarnation=2, space=broker._space_digest, seen=1)
    broker.handle(0.0, ports.Received("a", again))
    broker.handle(0.0, ports.Publish(np.zeros((1, 2))))
    (_, frame), *_ = sent_by(broker.handle(0.0, ports.Durable(4)), frames.Events)
    assert (frame.after, frame.numbers) == (0, [4])  # after 3 would be a gap there, for ever


def test_a_broker_that_lost_its_own_numbers_gives_none_a_second_time_and_tells_of_the_loss():
    broker, out = greeted(kept={"b": 7})
    (alarm,) = [one for one in out if isinstance(one, ports.Alarm)]
    assert (alarm.kind, ports.Renumber(7) in out) == ("history", True)
    assert "it has events of b up to 7 that the local log lacks" in alarm.text
    broker.handle(0.0, ports.Received("a", ALL))
    for number, lost in ((8, True), (9, False)):
        broker.handle(0.0, ports.Publish(np.zeros((1, 2))))
        out = broker.handle(0.0, ports.Durable(number - 7))
        ((_, frame),) = sent_by(out, frames.Events)
        assert (frame.numbers, frame.lost) == ([number], lost)


def published_here(broker, count):
    """Let a broker have events; return the checksum after each."""
    for place in range(count):
        out = broker.handle(0.0, ports.Publish(np.full((1, 2), place)))
        broker.handle(0.0, ports.Durable(broker.log.end))
        yield next(one.block.mark for one in out if isinstance(one, ports.Append))


def test_numbers_are_compared_with_the_checksum_of_what_they_name():
    broker = Broker("b", SPACE, settings=QUIET)
    marks = [*published_here(broker, 5)]
    assert len(set(marks)) == 5
    for kept, mark, parted in ((3, marks[2], 0), (3, marks[3], 1), (5, marks[4], 0), (6, b"", 1)):
        broker.handle(0.0, ports.LinkUp("a"))
        space, before = broker._space_digest, broker.counts["histories that parted"]
        hello = frames.Hello(broker="a", incarnation=1, space=space, kept={"b": kept}, mark=mark)
        out = broker.handle(0.0, ports.Received("a", hello))
        assert broker.counts["histories that parted"] - before == parted
        assert any(isinstance(one, ports.Alarm) for one in out) == bool(parted)
        assert not any(isinstance(one, ports.Close) for one in out)


def test_a_disk_of_before_gives_higher_numbers_after_a_later_start():
    broker = Broker("b", SPACE, settings=QUIET, numbers_from=100)
    marks = [*published_here(broker, 4)]
    log = [block for _, block in broker.log.between(0, 9)]
    again = Broker("b", SPACE, settings=QUIET, numbers_from=200, log=log[:2])
    [*published_here(again, 3)]
    assert again._number == 203
    for number, mark in ((101, marks[0]), (102, marks[1]), (103, None), (104, None)):
        assert again.log.mark_of(number) == mark
    assert again.log.mark_of(204) is None


def test_the_log_is_looked_at_as_far_as_a_link_can_take_it():
    broker, _ = greeted(window=2, max_scanned=3)
    broker.handle(0.0, ports.Received("a", ALL))
    for place in range(10):
        broker.handle(0.0, ports.Publish(np.zeros((1, 2))))
        out = broker.handle(0.0, ports.Durable(place + 1))
    link, got = broker.links["a"], []
    assert (link.scanned, numbers_sent(out)) == (4, [])  # two on their way, two that wait
    for number in range(2, 11, 2):
        out = broker.handle(0.0, ports.Received("a", frames.EventsAck(kept={"b": number})))
        got += numbers_sent(out)
    assert got == [[number] for number in range(3, 11)]
    link.table.change_items(Batch(SPACE, []), [EVERYTHING.name])
    for _ in range(10):
        broker.handle(0.0, ports.Publish(np.zeros((1, 2))))
    out = broker.handle(0.0, ports.Durable(20))
    for expected in (13, 16, 19, 20):  # nothing is wanted: three at a time, and then a tick
        assert link.scanned == expected
        assert link.is_behind == (expected < 20)
        assert any(isinstance(one, ports.Timer) and one.at == 0 for one in out) == link.is_behind
        out = broker.handle(0.0, ports.Tick())


def test_texts_on_their_way_are_bounded_by_bytes():
    broker, _ = greeted(window_bytes=10)
    broker.handle(0.0, ports.Received("a", ALL))
    for number in (1, 2, 3):
        texts = [b"123456"]
        block = event_log.Block(
            "b", number - 1, number, [number], [0], np.zeros((1, 2)), {}, [], 0, "", texts
        )
        broker.log.append(block)
    assert numbers_sent(broker.handle(0.0, ports.Durable(3))) == [[1], [2]]
    out = broker.handle(0.0, ports.Received("a", frames.EventsAck(kept={"b": 1})))
    assert numbers_sent(out) == [[3]]
    assert sent_by(out, frames.Events)[0][1].texts == [b"123456"]


def test_what_isn_t_given_up_is_sent_though_older_events_were():
    broker, _ = greeted(max_held=2)
    broker.handle(0.0, ports.Received("a", ALL))
    broker.handle(0.0, ports.Publish(np.zeros((1, 2))))
    broker.handle(0.0, ports.Publish(np.zeros((2, 2))))
    broker.handle(0.0, ports.Durable(1))
    out = broker.handle(0.0, ports.Durable(3))  # the first one wasn't confirmed
    assert [one.numbers for one in out if isinstance(one, ports.Dropped)] == [[1]]
    assert [frame.numbers for _, frame in sent_by(out, frames.Events)][-1] == [2, 3]
    assert broker.links["a"].scanned == 3


def test_frames_are_cut_by_bytes_and_what_no_frame_can_hold_is_rejected(monkeypatch):
    for module in (frames, event_log, items, publishing, broker_interest):
        monkeypatch.setattr(module, "MAX_CONTENT", 4000)
    spaces = {name: Space([*SPACE, String("word")]) for name in "abc"}
    net = Net({"a": "b", "b": "ac", "c": "b"}, spaces=spaces)
    filters = {n: f"word = '{chr(97 + n) * 900}' and x < 50" for n in range(20)}
    net.do("c", ports.Subscribe(filters))
    events = [{"x": 1, "y": 1, "word": chr(97 + n) * 900} for n in range(20)]
    net.do("a", ports.Publish(events, ids=[f"{n}" * 500 for n in range(20)]))
    assert [one[0] for one in net.got.values()] == list(range(20))
    net.do("b", ports.LinkDown("c"))
    net.do("c", ports.LinkDown("b"))
    net.do("b", ports.LinkUp("c"))
    net.do("b", ports.Received("c", frames.Hello(broker="c", incarnation=9, space="x")))
    kinds = (frames.Interest, frames.Events, frames.Snapshot)
    sizes = [len(frames.encode(one)) for *_, one in net.sent if isinstance(one, kinds)]
    assert max(sizes) < 4300
    assert len(sizes) > 20
    for large in (
        ports.Subscribe({99: f"word = '{'a' * 5000}'"}),
        ports.Publish([{"x": 1, "y": 1, "word": "a" * 5000}]),
        ports.Publish([{"x": 1, "y": 1}], ids=["a" * 5000]),
    ):
        with pytest.raises(UsageError, match="more than a frame can hold"):
            net.brokers["a"].handle(0.0, large)
    assert 99 not in net.brokers["a"]._members
    frame = frames.Events(
        origin="q",
        after=0,
        upto=1,
        numbers=[1],
        ids=["i" * 5000],
        points=bytes(24),
        words={"word": [None]},
    )
    broker = net.brokers["a"]
    broker.handle(0.0, ports.Received("b", frame))
    item = frames.TextItem(name_of("x" * 5000), "x" * 5000)
    with pytest.raises(FrameError, match="at most 4,000 bytes"):
        with_local_words([item], spaces["a"], None)
    assert broker.counts["frames rejected"] == 1


def test_what_neighbours_say_of_brokers_and_questions_is_bounded():
    bounded = Settings(heartbeat_interval=None, withdraw_delay=0, max_origins=2, max_questions=3)
    net = Net({"a": "b", "b": "ac", "c": "b"}, settings=bounded)
    broker = net.brokers["b"]
    link = broker.links["a"]
    broker.handle(0.0, ports.Received("a", frames.EventsAck(kept={f"o{n}": 5 for n in range(50)})))
    assert link.taken == {}
    for n in range(5):
        frame = frames.Events(
            origin=f"o{n}", after=0, upto=1, numbers=[1], ids=[1], points=bytes(16)
        )
        broker.handle(0.0, ports.Received("a", frame))
    assert broker.counts["frames rejected"] == 3
    assert len(broker._got) == 2
    hello = frames.Hello(
        broker="a", incarnation=1, space=broker._space_digest, reach=["x", "y", "z"]
    )
    broker.handle(0.0, ports.Received("a", hello))
    assert broker.counts["frames rejected"] == 4
    broker.handle(0.0, ports.LinkDown("c"))
    settle = {"incarnation": link.received.incarnation, "version": link.received.version}
    for n in range(10):
        broker.handle(0.0, ports.Received("a", frames.PropagationQuery(token=f"t{n}", **settle)))
    assert broker.counts["questions put off"] == 7
    for n in range(3):
        broker.handle(0.0, ports.AskPropagated(f"mine {n}"))
    with pytest.raises(UsageError, match=r"3 questions are pending.*\n.*max_questions"):
        broker.handle(0.0, ports.AskPropagated("mine 3"))
    out = broker.handle(0.0, ports.LinkDown("c", forget=True))
    settled = [one for one in out if isinstance(one, ports.Send) and "t" in str(one.frame)]
    assert [
        one.frame.token for one in settled if isinstance(one.frame, frames.PropagationReply)
    ] == [
        "t0",
        "t1",
        "t2",
    ]
    for n in (1, 2, 3):
        net.do("b", ports.Received("a", frames.PropagationReply(token=f"b/1/{n}")))
    net.do("b", ports.AskPropagated("mine 3"))
    assert ("b", ports.IsPropagated("mine 3")) in net.others


@pytest.mark.parametrize("filters", [3, 400])
def test_names_that_come_back_are_last_in_the_order_of_arrival(filters):
    table = Table(SPACE)
    packed = pack([[(0, 0.0, 63.0)]])
    table.change(dict.fromkeys(range(filters), packed))
    point = np.zeros((1, 2))
    assert list(table.matches(point)[0]) == list(range(filters))
    table.change({}, [0, 1])
    table.change({1: packed})
    table.change({2: packed, 0: packed})  # 2 gets another filter, and stays where it is
    assert list(table.matches(point)[0]) == [*range(2, filters), 1, 0]
