"""Faults of one server: each lets writers work, does harm meanwhile, and checks promises."""

from __future__ import annotations

import errno
import random
import time
from collections.abc import Callable

from tests.soak.chaos.episode import SOON, SingleEpisode
from tests.soak.chaos.history import BrokenPromiseError
from tests.soak.chaos.hostile import Hostile
from tests.soak.chaos.plan import Round
from tests.soak.chaos.processes import until
from tests.soak.chaos.readers import SlowReader
from tests.soak.chaos.wire import Connection, ask


def calm(play: SingleEpisode, one: Round) -> None:
    """Let writers work, and end."""
    play.join(play.work(one))
    play.finish(one)


def kill(play: SingleEpisode, one: Round) -> None:
    """Kill the server while writers work."""
    threads = play.work(one)
    play.until_done(one.after, threads)
    play.kill(play.main)
    play.join(threads)
    play.check(play.main)


def kill_at(play: SingleEpisode, one: Round) -> None:
    """Let the server die in a write, before a sync or after one."""
    delay, point = one.with_["sync_delay"], one.with_["point"]
    play.main.control.set(sync_delay=delay, **{point: one.with_["count"]})
    threads = play.work(one)
    play.join(threads)
    play.main.control.heal()
    play.kill(play.main, is_power=one.with_["is_power"])  # if it hasn't come to its point
    play.check(play.main)


def power(play: SingleEpisode, one: Round) -> None:
    """Cut the power while writers work."""
    threads = play.work(one)
    play.until_done(one.after, threads)
    play.kill(play.main, is_power=True)
    play.join(threads)
    play.check(play.main)


def term(play: SingleEpisode, one: Round) -> None:
    """End the server by SIGTERM while writers work."""
    threads = play.work(one)
    play.until_done(one.after, threads)
    play.term(play.main)
    play.join(threads)
    play.check(play.main)


def slow_disk(play: SingleEpisode, one: Round) -> None:
    """Let each sync take long."""
    play.main.control.set(sync_delay=one.with_["sync_delay"], write_delay=one.with_["write_delay"])
    play.join(play.work(one))
    play.main.control.heal()
    play.finish(one)


def full_disk(play: SingleEpisode, one: Round) -> None:
    """Let the disk be full: nothing is taken, readiness says so, and it comes back by itself."""
    control, stage = play.main.control, one.with_["stage"]
    threads = play.work(one)
    play.until_done(one.after, threads)
    control.set(room=one.with_["room"])
    play.join(threads)
    _expect_full(play)
    if stage == "term":
        play.term(play.main)
        play.check(play.main)
        control.heal()
        return
    if stage == "start":
        play.kill(play.main)
        play.check(play.main)
        play.start(play.main)
    control.heal()
    if not until(lambda: play.publish_one() == 200, SOON, 0.2):
        raise BrokenPromiseError("recovers", "there is room again, and no event is accepted")
    if not until(lambda: ask(play.main, "GET", "/readyz").status == 200, SOON, 0.1):
        raise BrokenPromiseError("ready", "events are accepted again, and /readyz says 503")


def _expect_full(play: SingleEpisode) -> None:
    """Publish until the disk is full, then see that readiness says so."""
    play.main.control.set(room=0)
    for _ in range(400):
        status = play.publish_one()
        if status == 507:
            ready = ask(play.main, "GET", "/readyz")
            if ready.status != 503:
                raise BrokenPromiseError(
                    "ready", f"an event was answered 507, and /readyz says {ready.status}"
                )
            return
        if play.main.code() is not None:
            raise BrokenPromiseError(
                "alive", f"a full disk ends the server with {play.main.code()}\n{play.main.said()}"
            )
    # The segment's file can be written again from its start: there is room for that long.


def io_error(play: SingleEpisode, one: Round) -> None:
    """Let the disk give errors: the server stops, and a new start recovers."""
    for client in (play.readers, *play.writers):
        client.is_broken = True
    threads = play.work(one)
    play.until_done(one.after, threads)
    play.main.control.set(**{one.with_["what"]: errno.EIO})
    play.join(threads)
    until(lambda: play.publish_one() != 200, SOON, 0.01)
    code = play.expect_end("after an error of the disk")
    if code == 0:
        raise BrokenPromiseError("stops", f"an error of the disk ends the server with {code}")
    play.main.control.heal()
    if one.with_["is_power"]:
        play.main.control.cut_power(play.dice)
    for client in (play.readers, *play.writers):
        client.is_broken = False
    play.check(play.main)


def clock(play: SingleEpisode, one: Round) -> None:
    """Let the clock jump, forth and back."""
    control = play.main.control
    threads = play.work(one)
    for jump in one.with_["jumps"]:
        play.until_done(one.after, threads)
        control.set(clock_offset=control.get("clock_offset") + jump * 10**9)
        time.sleep(0.2)
        play.publish_one()
    play.join(threads)
    if one.with_["is_right_again"]:
        control.set(clock_offset=0)
    play.finish(one)


def slow_reader(play: SingleEpisode, one: Round) -> None:
    """Let a WebSocket read nothing of megabytes; SIGTERM must end the server all the same."""
    text = f"x >= -1 and x <= -1 and y > -{one.number}.25"
    body = {"filter": text, "consumer": "slow"}
    number = play.history.op("a", "put", puts=[{"name": "slow", "filter": text}])
    play.writers[0].edited(number, ask(play.main, "PUT", "spaces/points/subscriptions/slow", body))
    readers = [SlowReader(play.main) for _ in range(2)]
    threads = play.work(one)
    for at in range(12):
        event = {"id": f"l{one.number}-{at}", "x": -1, "y": 1, "note": "n" * 400_000}
        number = play.history.op("a", "events", events=[[f'"{event["id"]}"', {"x": -1, "y": 1}]])
        answer = ask(play.main, "POST", "spaces/points/events", event)
        play.writers[0].published(number, answer)
    play.join(threads)
    play.term(play.main)
    for reader in readers:
        reader.close()
    play.check(play.main)


def repeats(play: SingleEpisode, one: Round) -> None:
    """Let the same requests come several times at once, on a slow disk; then the server dies in a
    sync, or the disk is full.
    """
    control, how = play.main.control, one.with_["how"]
    control.set(sync_delay=one.with_["sync_delay"])
    if how != "full":
        control.set(kill_before_sync=one.with_["count"])
    threads = play.work_repeats(one)
    if how == "full":
        play.until_done(one.after, threads)
        control.set(room=0)
    play.join(threads)
    control.heal()
    play.kill(play.main, is_power=how == "power")
    play.check(play.main)


def hostile(play: SingleEpisode, one: Round) -> None:
    """Send what a hostile client sends, while others work."""
    threads = play.work(one)
    dice = random.Random(f"{play.plan.seed}/{one.number}/hostile")
    with Connection(play.main) as connection:
        client = Hostile(play.main, play.history, play.writers[0], connection)
        for at, kind in enumerate(one.with_["kinds"]):
            client.run(kind, one.number * 100 + at, dice)
            play.check_clients()
    play.join(threads)
    play.finish(one)


def start_killed(play: SingleEpisode, one: Round) -> None:
    """Kill the server, and then its start; the next one must come up."""
    threads = play.work(one)
    play.until_done(one.after, threads)
    play.kill(play.main)
    play.join(threads)
    play.check(play.main)
    play.main.control.set(**{one.with_["point"]: one.with_["count"]})
    play.main.start()
    play.main.control.heal()
    play.kill(play.main)
    play.check(play.main)


def quiet_restart(play: SingleEpisode, one: Round) -> None:
    """Let the server die before a sync; start it, let consumers read, and cut the power before
    anything is written: what was delivered must still be there.
    """
    play.main.control.set(kill_before_sync=one.with_["count"])
    play.join(play.work(one))
    play.main.control.heal()
    play.kill(play.main)
    play.check(play.main)
    play.start(play.main)
    time.sleep(0.15)  # readers read; acknowledgements are written after half a second
    play.kill(play.main, is_power=True)
    play.check(play.main)


def follower(play: SingleEpisode, one: Round) -> None:
    """Let harm come to the follower while writers work."""
    threads = play.work(one)
    play.until_done(one.after, threads)
    play.copy.harm(one.with_["what"])
    play.join(threads)
    play.finish(one)
    if one.end != "none":
        play.start(play.main)
    play.copy.heal()


FAULTS: dict[str, Callable[[SingleEpisode, Round], None]] = {
    "calm": calm,
    "kill": kill,
    "kill-at": kill_at,
    "power": power,
    "term": term,
    "slow-disk": slow_disk,
    "full-disk": full_disk,
    "io-error": io_error,
    "clock": clock,
    "slow-reader": slow_reader,
    "repeats": repeats,
    "hostile": hostile,
    "start-killed": start_killed,
    "quiet-restart": quiet_restart,
    "follower": follower,
}
