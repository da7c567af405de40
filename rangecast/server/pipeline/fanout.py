"""What follows from units of the log: changes of indexes, and messages to consumers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec
import numpy as np

from rangecast.kernels.arrays import I64, Bool
from rangecast.model.sets.members import Id
from rangecast.server.delivery.messages import Message
from rangecast.server.state.board_index import Addressed, BoardIndex, Listened
from rangecast.server.state.boards import BoardEntry, InterestChange
from rangecast.server.state.registry import AnyChange, Change, Consumer
from rangecast.server.state.space_index import Found, SpaceIndex, by_event, grouped

_decode = msgspec.json.Decoder(list[str | int]).decode


def carry_out(changes: Sequence[AnyChange], indexes: dict[int, SpaceIndex]) -> None:
    """Bring the indexes of spaces to where changes lead."""
    by_space: dict[int, list[Change]] = {}
    for change in changes:
        if isinstance(change, InterestChange):
            continue
        by_space.setdefault(change.entry.number, []).append(change)
    for number, some in by_space.items():
        if number not in indexes:
            indexes[number] = SpaceIndex(some[0].entry)
        indexes[number].carry_out(some)


def board_messages(
    changes: Sequence[AnyChange], indexes: dict[BoardEntry, BoardIndex], listened: Listened
) -> Iterator[Addressed]:
    """Bring the lists of boards to where changes lead; yield those of new interests."""
    for change in changes:
        if not isinstance(change, InterestChange):
            continue
        entry = change.entry
        if change.is_deleted:
            del indexes[entry]
        elif change.new is not None:
            indexes[entry].put(change.new)
            if listened(change.new.consumer):
                yield indexes[entry].first_list(change.new, change.seq)
        elif change.old is not None:
            indexes[entry].remove(change.old.id)
        else:
            indexes[entry] = BoardIndex(entry, {}, ())


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
        turn = by_event(places, some, index.scores[some], consumer.max_per_event)
        names = [index.names[number] for number in some[turn].tolist()]
        mailbox = messages.setdefault(owner, [])
        for event, ids in grouped(places[turn], names, consumer.max_per_event):
            mailbox.append(Message(int(seqs[event]), lines[event], ids))


def ids_by_event(found: Found, index: SpaceIndex, begin: int, count: int) -> list[list[Id]]:
    """Return the ids of the subscriptions that match each of some events."""
    first, last = np.searchsorted(found.events, (begin, begin + count))
    events, numbers = found.events[first:last] - begin, found.numbers[first:last]
    numbers = numbers[np.lexsort((numbers, events))]
    names = b",".join([index.names[number] for number in numbers.tolist()])
    ids = _decode(b"[%s]" % names)  # at once: a call for each took longer than the matching
    ends = np.cumsum(np.bincount(events, minlength=count)).tolist()
    return [ids[start:end] for start, end in pairwise([0, *ends])]
