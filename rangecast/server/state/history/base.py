"""States of all subscriptions at which a replay of the log can begin.

These are the start of the log, while nothing was dropped from it; the snapshots; and one state that
is written when the part of the log before it is dropped. So every seq that the log still has can be
asked about.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from rangecast.errors import SnapshotError
from rangecast.model.space import Space
from rangecast.server.log.base import START, Log, LogError, Unit
from rangecast.server.state.dedup import Deduplicator
from rangecast.server.state.edits import (
    EDITS,
    AnyEdit,
    DeleteConsumer,
    DeleteSubscription,
    PutConsumer,
    PutRun,
    PutSubscription,
    edits_of,
)
from rangecast.server.state.entries import Change
from rangecast.server.state.registry import Name, Registry
from rangecast.server.state.snapshots import (
    BASE,
    SNAPSHOT,
    SnapshotState,
    State,
    path_of,
    registry_of,
    snapshots,
    state_of,
)
from rangecast.server.state.tracks.spaces import Tracks

logger = logging.getLogger("rangecast.server")
PIECE = 4 << 20
"""Bytes of the log that are read at a time."""
Spaces = Mapping[Name, Space]
ChainAt = Callable[[int], bytes | None]


class Bases:
    """Bases of a log. Any thread may ask for one."""

    def __init__(self, log: Log, folder: Path | None, chain_at: ChainAt):
        self._log, self._folder, self._chain_at = log, folder, chain_at
        self._damaged: set[Path] = set()

    def seqs(self) -> list[int]:
        """Return the seqs of the bases, ascending."""
        return sorted(self._paths())

    def _paths(self) -> dict[int, Path | None]:
        first, folder = self._log.first, self._folder
        paths: dict[int, Path | None] = {}
        for kind in (BASE, SNAPSHOT) if folder is not None else ():
            assert folder is not None
            for seq in snapshots(folder, kind):
                path = path_of(folder, seq, kind)
                if first - 1 <= seq <= self._log.last and path not in self._damaged:
                    paths[seq] = path
        return paths | ({0: None} if first == 1 else {})

    def newest(self, upto: int, spaces: Spaces) -> tuple[int, Registry] | None:
        """Return the newest base at or before a seq, and the subscriptions of some spaces."""
        paths = self._paths()
        for seq in sorted((seq for seq in paths if seq <= upto), reverse=True):
            path = paths[seq]
            if path is None:
                return 0, registry_of(_EMPTY, Path(), spaces)
            try:
                state = state_of(path)
                if state.seq != seq or not self._is_ours(state):
                    raise SnapshotError(f"{path}: belongs to another history")
                return seq, registry_of(state, path, spaces)
            except SnapshotError as error:
                logger.warning("%s; an earlier state is used", error)
                self._damaged.add(path)
        return None

    def _is_ours(self, state: State) -> bool:
        chain = self._chain_at(state.seq)
        return state.epoch == self._log.epoch and (chain is None or chain.hex() == state.chain)

    def keep(self, upto: int, spaces: Spaces) -> None:
        """Write the state at a seq, before the log up to there is dropped."""
        if self._folder is None or (base := self.newest(upto, spaces)) is None:
            return
        seq, registry = base
        try:
            for unit in units_of(self._log, seq, upto):
                if unit.last > upto:
                    break
                for _ in changes_of(registry, unit):
                    pass
                seq = unit.last
            chain = self._chain_at(seq)
            if chain is not None and seq not in snapshots(self._folder, BASE):
                position = self._log.epoch, seq, chain
                state = SnapshotState(registry, {}, Deduplicator(), Tracks(), position)
                state.write(self._folder, BASE, kept=1)
        except (OSError, LogError) as error:
            logger.warning("earlier states can't be asked about any more: %s", error)


def units_of(log: Log, after: int, upto: int) -> Iterator[Unit]:
    """Yield the units after a seq that begin at or before another; raise a `LogError` if some were
    dropped in the meantime.
    """
    while after < upto:
        units = log.read(after, PIECE)
        for unit in units:
            if unit.first > after + 1:
                raise LogError(f"the log from seq {after + 1} to {unit.first - 1} was dropped")
            if unit.first > upto:
                return
            yield unit
            after = unit.last
        if not units:
            return


def changes_of(registry: Registry, unit: Unit) -> Iterator[Change]:
    """Apply the edits of a unit that change subscriptions of the registry's spaces."""
    if unit.kind != EDITS:
        return
    edits = edits_of(unit)
    if isinstance(edits, PutRun):
        if _concerns(registry, edits[0]):
            yield from _applied(registry, edits, unit.first)
        return
    for seq, edit in enumerate(edits, unit.first):
        if _concerns(registry, edit):
            yield from _applied(registry, [edit], seq)


def _applied(registry: Registry, edits: Sequence[AnyEdit], first: int) -> Iterator[Change]:
    for change in registry.apply(edits, first):
        if isinstance(change, Change):
            yield change


def _concerns(registry: Registry, edit: AnyEdit) -> bool:
    if isinstance(edit, PutSubscription | DeleteSubscription):
        return (edit.tenant, edit.space) in registry.spaces
    if isinstance(edit, PutConsumer):
        return not edit.board and (edit.tenant, edit.space) in registry.spaces
    return isinstance(edit, DeleteConsumer) and (edit.tenant, edit.name) in registry.consumers


_EMPTY = SnapshotState(Registry(), {}, Deduplicator(), Tracks(), ("", 0, START)).state
