"""Replay a log: apply its units in order, from a snapshot if there is one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from rangecast.errors import SnapshotError
from rangecast.server.log.base import START, LogError, Unit, is_chained
from rangecast.server.state.boards import updates_of
from rangecast.server.state.dedup import Deduplicator
from rangecast.server.state.edits import (
    ACKS,
    EDITS,
    EVENTS,
    TRANSITIONS,
    UPDATES,
    acks_of,
    edits_of,
    events_of,
    head_of,
)
from rangecast.server.state.entries import AnyChange
from rangecast.server.state.registry import Registry
from rangecast.server.state.snapshots import opened, snapshots
from rangecast.server.state.space_index import SpaceIndex
from rangecast.server.state.tracks.spaces import Tracks
from rangecast.server.state.tracks.transitions import transitions_head

logger = logging.getLogger("rangecast.server")


class Replay:
    """The state at one log position. The caller updates `indexes`."""

    def __init__(self, where: object):
        """`where`: name of the log for error messages."""
        self._where = where
        self.registry, self.deduplicator = Registry(), Deduplicator()
        self.indexes: dict[int, SpaceIndex] = {}
        self.tracks = Tracks()
        self.seq = 0
        self.chain = START

    def begin(
        self,
        folder: Path | None,
        epoch: str,
        first: int,
        chain_at: Callable[[int], bytes | None] = lambda _seq: None,
    ) -> None:
        """Load the newest intact snapshot of a folder, if any; reject a log that begins after its
        end. `chain_at`: returns the checksum of the log at a seq, if known.
        """
        unread: list[str] = []
        for seq in reversed(snapshots(folder)) if folder is not None else ():
            assert folder is not None
            try:
                state, registry, indexes, deduplicator, tracks = opened(folder, seq)
            except SnapshotError as error:
                logger.warning("%s; falling back to an earlier snapshot or the log", error)
                unread.append(str(error))
                continue
            chain = bytes.fromhex(state.chain)
            if state.epoch != epoch or chain_at(seq) not in (None, chain):
                logger.warning("snapshot %s belongs to another history and is not used", seq)
                unread.append(f"the snapshot at seq {seq} belongs to another history")
                continue
            self.registry, self.indexes, self.deduplicator = registry, indexes, deduplicator
            self.tracks = tracks
            self.seq, self.chain = seq, chain
            break
        if self.seq < first - 1:
            lines = [f"the log starts at seq {first}, and no snapshot has the part before"]
            lines += [f"  {reason}" for reason in unread]
            lines += ["  hint: restore the folder from a backup, or use the version that wrote it"]
            raise LogError(f"{self._where}: " + "\n".join(lines))

    def take(self, unit: Unit) -> list[AnyChange]:
        """Apply the next unit; reject a damaged one, or one out of order."""
        if not is_chained(self.chain, unit):
            raise LogError(
                f"{self._where}: the log is damaged at seq {unit.first}\n"
                "  hint: restore a backup; `rangecast log check` shows how far it is intact"
            )
        return self.carried_out(unit)

    def carried_out(self, unit: Unit) -> list[AnyChange]:
        """Apply a unit of the log; return the changes of indexes."""
        registry = self.registry
        changes: list[AnyChange] = []
        if unit.kind == EDITS:
            edits = edits_of(unit)
            registry.retained.note(edits[0].tenant, unit.last, len(unit.body))
            changes += registry.apply(edits, unit.first)
        elif unit.kind == ACKS:
            consumers = {consumer.key: consumer for consumer in registry.consumers.values()}
            for key, seq in acks_of(unit).items():
                if key in consumers:
                    consumers[key].cursor = max(consumers[key].cursor, seq)
        elif unit.kind == UPDATES:
            updates = updates_of(unit)[0]
            registry.retained.note(updates.tenant, unit.last, len(unit.body))
            registry.boards[updates.tenant, updates.board].take(unit)
        elif unit.kind == EVENTS:
            head = head_of(unit)
            registry.retained.note(head.tenant, unit.last, len(unit.body))
            if head.key or head.dedup or head.source:
                self.deduplicator.replay(unit.first, *events_of(unit))
        elif unit.kind == TRANSITIONS:
            registry.retained.note(transitions_head(unit).tenant, unit.last, len(unit.body))
        else:
            raise LogError(
                f"the log has {unit.kind!r} at seq {unit.first}, which this version of rangecast "
                "doesn't know\n"
                "  hint: use the version that wrote it, or a newer one"
            )
        self.tracks.take(unit, changes, registry)
        self.seq, self.chain = unit.last, unit.chain
        return changes
