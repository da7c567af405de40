"""Servers as processes: the messages of the servers of one process, and of a plain oracle."""

import os
import random
import signal
from pathlib import Path

import pytest

from rangecast.errors import RejectedRowError, UsageError
from rangecast.notify import Board, ServerLostError, ServerProcesses, Servers
from tests.notify.test_servers import columns
from tests.support.notify_model import Model, Receivers

pytestmark = pytest.mark.process
K, PLACES = 2, 40


def ends(rng):
    return tuple(sorted(rng.randint(-1, 2 * PLACES) / 2 for _ in range(2)))


def made(seed, objects=24, interests=30):
    """Return objects and interests, and a generator of changes of them."""
    rng = random.Random(seed)
    there = [(i, float(rng.randint(0, PLACES)), float(rng.randint(0, 9))) for i in range(objects)]
    return there, [ends(rng) for _ in range(interests)], rng


def batch_of(rng, known, size):
    """Return changes, many of one object in a row; the last objects of `known` may be new."""
    batch = []
    while len(batch) < size:
        y, x = float(rng.randint(0, 9)), float(rng.randint(0, PLACES // 4))
        one = rng.choice(sorted(known))
        kind = rng.random()
        if kind < 0.15:
            one = max(known) + 1
            known.add(one)
            batch.append((one, y, x))
        elif kind < 0.25 and len(known) > 5:
            known.discard(one)
            batch.append((one, None))
        elif kind < 0.4:
            batch.append((one, y, x))
        else:
            batch += [(one, float(rng.randint(0, 9))) for _ in range(rng.randint(1, 3))]
    return batch


def test_processes_send_the_messages_of_the_simulation_also_in_batches():
    objects, interests, rng = made(1)
    given = columns(objects, interests)
    board, simulated, single = Board(K, **given), Servers(K, 3, **given), Servers(K, 3, **given)
    model = Model(objects)
    receivers = Receivers(model, interests, K)
    known = {name for name, _, _ in objects}
    with ServerProcesses(K, 3, **given) as servers:
        assert len({process.pid for process in servers.processes} | {os.getpid()}) == 4
        for _ in range(15):  # values alone: no zone moves, so all counts are the same
            change = (rng.choice(sorted(known)), float(rng.randint(0, 9)))
            messages = servers.update_many([change])
            assert messages == simulated.update_many([change]) == list(board.update_many([change]))
            single.update_many([change])
            model.change(*change)
            receivers.take(messages)
            receivers.verify(model)
        assert servers.walks == simulated.walks
        assert servers.work[:3] == simulated.work[:3] == board.work[:3]
        for _ in range(8):
            batch = batch_of(rng, known, 6)
            messages = servers.update_batch(batch)
            assert messages == simulated.update_batch(batch)
            assert len(messages) <= len(single.update_many(batch))
            for change in batch:
                model.change(*change)
            receivers.take(messages)
            receivers.verify(model)
        lo, hi = ends(rng)
        new = {"id": [1000], "position_lo": [lo], "position_hi": [hi]}
        assert servers.subscribe_many(new) == simulated.subscribe_many(new) == 1
        assert servers.unsubscribe_many([0, 1]) == simulated.unsubscribe_many([0, 1]) == 2
        assert servers.update_many([(max(known), 1.0)]) == simulated.update_many(
            [(max(known), 1.0)]
        )
        servers.settle()
        simulated.settle()
        assert sum(servers.sizes) == sum(simulated.sizes) == len(model.objects)
    with pytest.raises(ServerLostError, match="closed"):
        servers.set_value(max(known), 2.0)
    assert all(process.poll() is not None for process in servers.processes)


def test_a_killed_process_is_an_error_and_ends_the_others():
    objects, _, _ = made(2)
    servers = ServerProcesses(K, 2, **columns(objects, []))
    servers.update_many([(name, 20.0) for name, _, _ in objects])
    os.kill(servers.processes[1].pid, signal.SIGKILL)
    with pytest.raises(ServerLostError, match="server 1 was killed by signal 9"):
        servers.update_many([(name, 30.0) for name, _, _ in objects])
    with pytest.raises(ServerLostError, match="server 1 was killed"):
        servers.settle()
    assert all(process.poll() is not None for process in servers.processes)


def test_a_process_that_does_not_answer_is_an_error():
    objects, _, _ = made(3, objects=4)
    given = {"objects": columns(objects, [])["objects"]}
    servers = ServerProcesses(K, 1, **given, timeout=0.2)
    os.kill(servers.processes[0].pid, signal.SIGSTOP)
    with pytest.raises(ServerLostError, match=r"no server has answered for 0\.2 seconds"):
        servers.set_value(0, 4.0)
    assert servers.processes[0].poll() is not None


def test_rejected_input_leaves_no_process():
    before = children()
    with pytest.raises(RejectedRowError, match="duplicate id"):
        ServerProcesses(K, 2, interests={"id": [1, 1]})
    with pytest.raises(UsageError, match="servers"):
        ServerProcesses(K, 0)
    assert children() == before


def children():
    """Return the processes that this one has started."""
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
