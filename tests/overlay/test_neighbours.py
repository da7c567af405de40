"""Neighbours that stop reading, say too much, come under another's name, or close a cycle."""

import numpy as np
import pytest

from rangecast.errors import FrameError
from rangecast.overlay import Broker, Settings
from rangecast.overlay.broker import ports
from rangecast.overlay.broker.state import Identity
from rangecast.overlay.interest.interest_set import ReceivedItems
from rangecast.overlay.interest.items import EVERYTHING, name_of
from rangecast.overlay.wire import frames
from rangecast.overlay.wire.packing import pack
from tests.overlay.test_limits import ALL, greeted, numbers_sent, sent_by, two_of_three
from tests.support.overlay import SPACE


def item(low):
    box = pack([[(0, float(low), float(low))]])
    return frames.BoxItem(name_of(box), box)


def hello(broker, name="a", incarnation=1, **more):
    return frames.Hello(
        broker=name, incarnation=incarnation, space=broker._space_digest, seen=1, **more
    )


def linked(name="b", **settings):
    """A broker with a neighbour that wants everything."""
    broker = Broker(name, SPACE, settings=Settings(withdraw_delay=0, **settings))
    broker.handle(0.0, ports.LinkUp("a"))
    broker.handle(0.0, ports.Received("a", hello(broker)))
    broker.handle(0.0, ports.Received("a", ALL))
    return broker


def publish(broker, count=1):
    broker.handle(0.0, ports.Publish(np.zeros((count, 2))))
    return broker.handle(0.0, ports.Durable(broker.log.end))


def ticks(broker, begin, end):
    """Let time pass; return all that is said."""
    return [one for now in range(begin, end) for one in broker.handle(float(now), ports.Tick())]


def test_nothing_is_sent_again_over_a_connection_that_lives():
    broker = linked(is_reliable=True)
    assert numbers_sent(publish(broker, 3)) == [[1, 2, 3]]
    assert numbers_sent(ticks(broker, 1, 100)) == []
    broker.handle(100.0, ports.LinkDown("a"))
    broker.handle(100.0, ports.LinkUp("a"))
    assert numbers_sent(broker.handle(100.0, ports.Received("a", hello(broker)))) == [[1, 2, 3]]


def test_a_neighbour_that_says_nothing_gets_nothing_twice_though_frames_may_be_lost():
    broker = linked()
    publish(broker, 3)
    assert numbers_sent(ticks(broker, 1, 100)) == []
    beat = frames.Heartbeat(incarnation=1, version=0, digest=EVERYTHING.name)
    broker.handle(100.0, ports.Received("a", beat))  # it lives, and lacks them
    assert numbers_sent(ticks(broker, 100, 110)) == [[1, 2, 3]]


def test_questions_are_not_asked_again_of_a_neighbour_that_says_nothing():
    broker = linked()
    broker.handle(0.0, ports.AskPropagated("t"))
    assert len(sent_by(ticks(broker, 1, 100), frames.PropagationQuery)) <= 2


def test_a_neighbour_that_says_nothing_is_closed():
    broker = linked(silence_timeout=30.0)
    outputs = ticks(broker, 1, 40)
    (close,) = [one for one in outputs if isinstance(one, ports.Close)]
    assert "nothing was received for 30 seconds" in close.why
    assert any(isinstance(one, ports.Alarm) and one.kind == "silence" for one in outputs)
    assert not broker.links["a"].is_up
    assert len(sent_by(outputs, frames.Heartbeat)) <= 31


def test_what_is_wanted_is_told_some_at_a_time_and_waits_while_a_link_is_clogged():
    broker = linked(heartbeat_interval=None, max_items=2, max_burst_bytes=100)
    broker.handle(0.0, ports.LinkFull("a"))
    wanted = {one: f"x between {one} and {one}" for one in range(20)}
    broker.handle(0.0, ports.Subscribe(wanted))
    assert sent_by(broker.handle(0.0, ports.AskPropagated("t")), frames.PropagationQuery) == []
    outputs, count = broker.handle(0.0, ports.LinkDrained("a")), 0
    told = []
    while any(isinstance(one, ports.Timer) and one.at <= 0 for one in outputs):
        some = sent_by(outputs, frames.Interest)
        assert sum(map(frames.item_size, (i for _, f in some for i in f.added))) < 200
        told += some
        count += 1
        assert sent_by(outputs, frames.PropagationQuery) == []
        outputs = broker.handle(0.0, ports.Tick())
    told += sent_by(outputs, frames.Interest)
    assert sum(len(frame.added) for _, frame in told) == 20
    assert count > 5
    ((_, asked),) = sent_by(outputs, frames.PropagationQuery)  # asked when all was told
    assert asked.version == told[-1][1].version


def test_a_snapshot_is_sent_some_at_a_time_and_once_for_many_requests():
    broker = linked(heartbeat_interval=None, max_items=1, max_burst_bytes=1, is_reliable=True)
    broker.handle(0.0, ports.Subscribe({one: f"x between {one} and {one}" for one in range(9)}))
    for _ in range(20):
        broker.handle(0.0, ports.Tick())
    resync = frames.Resync(version=0, why="gap")
    parts = []
    for _ in range(3000):
        parts += sent_by(broker.handle(0.0, ports.Received("a", resync)), frames.Snapshot)
        parts += sent_by(broker.handle(0.0, ports.Tick()), frames.Snapshot)
        if len(parts) >= 9:
            break
    assert [frame.part for _, frame in parts] == [*range(9)]
    broker.handle(0.0, ports.LinkFull("a"))
    for _ in range(3000):
        assert not sent_by(broker.handle(0.0, ports.Received("a", resync)), frames.Snapshot)
    assert len(broker.links["a"].parts) == 9


def test_staged_snapshots_and_items_are_bounded():
    some = [item(low) for low in range(60)]
    heard = ReceivedItems()

    def part(number, parts, items, version=1):
        return frames.Snapshot(
            incarnation=1, version=version, digest=0, part=number, parts=parts, items=items
        )

    for wrong in (part(3, 3, some[:1]), part(1 << 40, 3, some[:1]), part(0, 3, [])):
        with pytest.raises(FrameError, match="of 3 has"):
            heard.stage(wrong, 10, 10_000)
    for number in range(10):
        heard.stage(part(number, 60, [some[number]]), 10, 10_000)
        heard.stage(part(number, 60, [some[number]]), 10, 10_000)  # again: it is held once
    with pytest.raises(FrameError, match="10 items and 10,000 bytes"):
        heard.stage(part(10, 60, [some[10]]), 10, 10_000)
    assert heard._parts == {}
    with pytest.raises(FrameError, match="100 bytes"):
        heard.stage(part(0, 2, some[:30], 2), 1000, 100)
    with pytest.raises(FrameError, match="not a frame"):
        frames.decode(frames.encode(part(0, (1 << 16) + 1, some[:1])))
    broker = Broker("b", SPACE, settings=Settings(heartbeat_interval=None, max_received=3))
    broker.handle(0.0, ports.LinkUp("a"))
    broker.handle(0.0, ports.Received("a", hello(broker)))
    broker.handle(0.0, ports.Received("a", frames.Snapshot(incarnation=1, version=1, digest=0)))
    for count, rejected in ((3, 0), (1, 1)):
        version = broker.links["a"].received.version
        new = some[:count] if count > 1 else some[3:4]
        digest = broker.links["a"].received.digest_after(new, [])
        frame = frames.Interest(
            incarnation=1, before=version, version=version + 1, digest=digest, added=new
        )
        broker.handle(0.0, ports.Received("a", frame))
        assert broker.counts["frames rejected"] == rejected


def test_what_would_be_too_many_bytes_is_told_as_everything():
    broker = linked(heartbeat_interval=None, max_advertised_bytes=200)
    broker.handle(0.0, ports.Subscribe({one: f"x between {one} and {one}" for one in range(3)}))
    assert not broker.links["a"].is_full
    out = broker.handle(0.0, ports.Subscribe({9: "x between 9 and 9 and y between 1 and 2"}))
    assert broker.links["a"].is_full
    assert [one.name for _, frame in sent_by(out, frames.Interest) for one in frame.added] == [
        EVERYTHING.name
    ]
    broker.handle(0.0, ports.Unsubscribe([9, 0]))
    assert not broker.links["a"].is_full


def test_a_clock_that_went_back_is_told_and_the_neighbour_is_heard_again():
    broker = linked(heartbeat_interval=None)
    broker.handle(0.0, ports.LinkUp("a"))
    broker.handle(0.0, ports.Received("a", hello(broker, incarnation=1000)))
    snapshot = frames.Snapshot(incarnation=1000, version=7, digest=0)
    broker.handle(0.0, ports.Received("a", snapshot))
    broker.handle(0.0, ports.Received("a", hello(broker, incarnation=5)))
    assert broker.counts["frames rejected"] == 1  # not over the same connection
    broker.handle(0.0, ports.LinkDown("a"))
    broker.handle(0.0, ports.LinkUp("a"))
    out = broker.handle(0.0, ports.Received("a", hello(broker, incarnation=5, version=1)))
    assert [one.kind for one in out if isinstance(one, ports.Alarm)] == ["clock"]
    assert sent_by(out, frames.Resync)
    new = item(3)
    snapshot = frames.Snapshot(incarnation=5, version=1, digest=new.name, items=[new])
    broker.handle(0.0, ports.Received("a", snapshot))
    assert [*broker.links["a"].received.items] == [new.name]


def test_a_name_belongs_to_the_log_that_was_linked_first():
    mine = Identity("log-b", ("2", "1"))
    broker = Broker("b", SPACE, settings=Settings(heartbeat_interval=None), identity=mine)
    out = broker.handle(0.0, ports.LinkUp("a"))
    ((_, greeting),) = sent_by(out, frames.Hello)
    assert (greeting.log, greeting.epochs) == ("log-b", ["2", "1"])
    first = hello(broker, log="one", epochs=["e1"])
    out = broker.handle(0.0, ports.Received("a", first))
    assert out[0] == ports.Accepted("a", "one")
    again = hello(broker, incarnation=2, log="one", epochs=["e2", "e1"])
    other = hello(broker, incarnation=3, log="two", epochs=["x"])
    copied = hello(broker, incarnation=3, log="one", epochs=["y", "e0"])
    assert broker.conflict(again) == ""
    assert "stop the wrong one" in broker.conflict(other)
    assert "stop the wrong one" in broker.conflict(copied)
    for known in (broker, Broker("b", SPACE, links=["a"], logs={"a": "one"})):
        known.handle(0.0, ports.LinkDown("a"))
        assert known.conflict(other) == ""
        known.handle(0.0, ports.LinkUp("a"))
        out = known.handle(0.0, ports.Received("a", other))
        (said,) = [frame for _, frame in sent_by(out, frames.Reject)]
        assert said.kind == "identity"
        assert "delete the link to a here" in known.links["a"].rejected
        known.handle(0.0, ports.LinkUp("a"))
        out = known.handle(0.0, ports.Received("a", copied))  # an older copy of the same log
        assert not any(isinstance(one, ports.Close) for one in out)


def test_a_link_that_closes_a_cycle_blocks_no_question():
    broker = two_of_three()
    for name in "ac":
        frame = frames.Snapshot(incarnation=1, version=1, digest=EVERYTHING.name)
        frame = frames.Snapshot(
            incarnation=1, version=1, digest=EVERYTHING.name, items=[EVERYTHING]
        )
        broker.handle(0.0, ports.Received(name, frame))
    broker.handle(0.0, ports.AskPropagated("t"))
    broker.handle(0.0, ports.Received("c", hello(broker, "c", reach=["c"])))
    reject = frames.Reject(kind="cycle", why="c can already be reached without it")
    broker.links["c"].reach = ["c", "a"]
    broker.handle(0.0, ports.Received("a", reject))
    assert broker.links["a"].is_bypassed
    assert "can already be reached without it" in broker.links["a"].rejected
    answer = frames.PropagationReply(token="b/1/1")
    assert ports.IsPropagated("t") in broker.handle(0.0, ports.Received("c", answer))
    # The other way ends: questions wait for the neighbour again.
    broker.handle(0.0, ports.AskPropagated("u"))
    out = broker.handle(0.0, ports.LinkDown("c", forget=True))
    assert ports.IsPropagated("u") not in out
    assert not broker.links["a"].is_bypassed


def test_a_neighbour_that_goes_on_with_an_older_disk_is_told_what_it_lost():
    broker, _ = greeted()
    broker.handle(0.0, ports.Received("a", ALL))
    publish(broker, 3)
    broker.handle(0.0, ports.Received("a", frames.EventsAck(kept={"b": 3})))
    broker.handle(0.0, ports.LinkUp("a"))
    broker.handle(0.0, ports.Received("a", hello(broker, incarnation=2, kept={"b": 1})))
    ((_, frame),) = sent_by(publish(broker), frames.Events)
    assert (frame.numbers, frame.lost) == ([4], True)


def test_a_loss_is_told_with_the_next_event_that_is_wanted_and_passed_on():
    broker = two_of_three()
    for name in "ac":
        broker.handle(0.0, ports.Received(name, ALL))
    frame = frames.Events(
        origin="z", after=0, upto=5, numbers=[5], ids=[1], points=bytes(16), lost=True
    )
    broker.handle(0.0, ports.Received("a", frame))
    ((link, sent),) = sent_by(broker.handle(0.0, ports.Durable(1)), frames.Events)
    assert (link, sent.lost) == ("c", True)
    link = broker.links["c"]
    link.rewind()  # it wasn't confirmed
    link.scan(broker.log, SPACE, 100, None)
    assert [one.lost for one in link.ready] == [True]


def test_names_are_texts_that_can_be_shown():
    for name in ("a\0", "a\n", "\x85", "a\x7fb", ""):
        data = frames.encode(frames.Hello(broker=name, incarnation=1, space=""))
        with pytest.raises(FrameError):
            frames.decode(data)
