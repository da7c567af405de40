"""What follows from units of the log: changes of indexes, and messages to consumers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from rangecast.kernels.arrays import I64, Bool
from rangecast.server.index import Found, SpaceIndex, by_event, grouped
from rangecast.server.messages import Message
from rangecast.server.registry import Change, Consumer


def carry_out(changes: Sequence[Change], indexes: dict[int, SpaceIndex]) -> None:
    """Bring indexes to where changes lead."""
    by_space: dict[int, list[Change]] = {}
    for change in changes:
        by_space.setdefault(change.entry.number, []).append(change)
    for number, some in by_space.items():
        if number not in indexes:
            indexes[number] = SpaceIndex(some[0].entry)
        indexes[number].carry_out(some)


def fan_out(
    found: Found,
    index: SpaceIndex,
    wanted: Bool,
    consumers: Sequence[Consumer | None],
    lines: Sequence[bytes],
    seqs: I64,
    messages: dict[int, list[Message]],
) -> None:
    """Add a message for each event and consumer that somebody waits for."""
    owners = index.owners[found.numbers]
    mine = owners >= 0
    mine[mine] = wanted[np.minimum(owners[mine], len(wanted) - 1)] & (owners[mine] < len(wanted))
    if not mine.any():
        return
    owners, events, numbers = owners[mine], found.events[mine], found.numbers[mine]
    order = np.argsort(owners, kind="stable")
    owners, events, numbers = owners[order], events[order], numbers[order]
    cuts = [0, *(np.flatnonzero(np.diff(owners)) + 1).tolist(), len(owners)]
    for begin, end in pairwise(cuts):
        owner = int(owners[begin])
        consumer = consumers[owner]
        if consumer is None:
            continue  # it has ended meanwhile
        places, some = events[begin:end], numbers[begin:end]
        turn = by_event(places, some, index.scores[some], consumer.best)
        names = [index.names[number] for number in some[turn].tolist()]
        mailbox = messages.setdefault(owner, [])
        for event, ids in grouped(places[turn], names, consumer.best):
            mailbox.append(Message(int(seqs[event]), lines[event], ids))


def ids_by_event(found: Found, index: SpaceIndex, begin: int, count: int) -> list[list[str]]:
    """Return the ids of the subscriptions that match each of some events."""
    lists: list[list[str]] = [[] for _ in range(count)]
    mine = (found.events >= begin) & (found.events < begin + count)
    events, numbers = found.events[mine] - begin, found.numbers[mine]
    order = np.lexsort((numbers, events))
    for event, number in zip(events[order].tolist(), numbers[order].tolist(), strict=True):
        lists[event].append(index.name(number))
    return lists
