"""Verification of a result from any source: nothing missing, extra or repeated, for every event.

`claims.py` holds the comparison; here ids become places and rows.

A result is record batches with the columns `event` and `subscription` (pairs), or `event` and
`subscriptions` (lists). What has no pair is said by an event's absence; a result of lists may hold
empty lists instead, but then it must have a row for every event.

Where the subscriptions changed on the way, a column `version` says by which set an event was
answered. An event that stands in the result nowhere must match nothing in one of the versions.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.errors import FileError, UsageError
from rangecast.kernels.arrays import F64, I64, Bool
from rangecast.match.verification.claims import BLOCK, Claims, Findings, Version, rows_of
from rangecast.match.warmup import begin
from rangecast.model.boxes import Boxes
from rangecast.model.encoding.events import Events
from rangecast.model.sets.ids import Places
from rangecast.model.space import Space

_KEPT = 5
"""Ids that are kept of each kind of difference."""
_NOWHERE, _SEVERAL = -1, -2
"""In place of a version: the event isn't in the result; it is, under more than one version."""


class Sample(NamedTuple):
    """One event that differs, with the first few subscriptions of each kind."""

    event: str | int
    missing: list[str | int]
    extra: list[str | int]
    twice: list[str | int]

    def __str__(self) -> str:
        kinds = (("missing", self.missing), ("not a match", self.extra), ("twice", self.twice))
        kinds_text = "; ".join(f"{kind}: {', '.join(map(str, ids))}" for kind, ids in kinds if ids)
        return f"event {self.event}: {kinds_text}"


@dataclass
class Verdict:
    """Outcome of a verification; all counts but the first two are differences."""

    events: int = 0
    pairs: int = 0
    differing_events: int = 0
    missing_pairs: int = 0
    extra_pairs: int = 0
    pairs_twice: int = 0
    unknown_events: int = 0
    """Rows of the result with an event that isn't among the events."""
    unknown_subscriptions: int = 0
    absent_events: int = 0
    """Events without a row, in a result of lists that has rows for events that match nothing."""
    events_twice: int = 0
    """Events with more than one row, in a result of lists."""
    events_of_several_versions: int = 0
    samples: list[Sample] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    """The first of the other differences, in words."""

    @property
    def holds(self) -> bool:
        """Whether nothing differs."""
        return not any(self.differences().values())

    def differences(self) -> dict[str, int]:
        """Return the number of differences of each kind, by the name of the kind."""
        return {
            "pairs missing": self.missing_pairs,
            "pairs that don't match": self.extra_pairs,
            "duplicate pairs": self.pairs_twice,
            "rows with an unknown event": self.unknown_events,
            "pairs with an unknown subscription": self.unknown_subscriptions,
            "events without a row": self.absent_events,
            "events with several rows": self.events_twice,
            "events with several versions": self.events_of_several_versions,
        }


def verify(
    events: Callable[[Space], Iterable[Events]],
    sets: Mapping[int, tuple[Boxes, Space]],
    result: Iterable[pa.RecordBatch],
    *,
    index: str = "auto",
    show: int = 5,
) -> Verdict:
    """Compare a result with the answer of the structure `index`.

    `events` reads all events against a space; `sets` are the subscriptions by version, the only
    one under any number.
    """
    if not sets:
        raise UsageError("no subscriptions to compare with")
    batches = [event.ids for event in events(next(iter(sets.values()))[1])]
    ids = pa.concat_arrays(batches) if batches else pa.array([], pa.int64())
    names, numbers = _numbered([boxes.ids for boxes, _ in sets.values()])
    with tempfile.TemporaryDirectory(prefix="rangecast-verify-") as folder:
        read = _Result(Claims(Path(folder), len(names)), ids, names, list(sets))
        for batch in result:
            read.take(batch)
        findings = Findings()
        somewhere = np.zeros(len(ids), np.bool_)
        for number, (label, (boxes, space)) in enumerate(sets.items()):
            mine = read.version == label if len(sets) > 1 else np.ones(len(ids), np.bool_)
            elsewhere = (read.version == _NOWHERE) & (len(sets) > 1)
            if not (mine | elsewhere).any():
                continue
            version = Version(begin(boxes, index)[0], numbers[number])
            for first, points in _blocks(events(space)):
                span = slice(first, first + len(points))
                _compare(read.claims, version, points, mine[span], first, findings, show)
                somewhere[span] |= _unmatched(version, points, elsewhere[span])
        lost = (read.version == _NOWHERE) & ~somewhere & (len(sets) > 1)
        return _verdict(read, findings, ids, names, lost, show)


def _numbered(ids: list[pa.Array]) -> tuple[pa.Array, list[I64]]:
    """Return the ids of all versions, each once, and where each version's own ids stand there."""
    whole = all(pa.types.is_integer(id_.type) for id_ in ids if len(id_))
    ids = [id_.cast(pa.int64() if whole else pa.large_string()) for id_ in ids]
    names = pa.chunked_array(ids).unique()
    places = Places(names)
    return names, [places.find(id_) for id_ in ids]


def _blocks(events: Iterable[Events]) -> Iterator[tuple[int, F64]]:
    """Yield (first event, points), `BLOCK` events at a time but for the last."""
    waiting: list[F64] = []
    held = first = 0
    for _, points in events:
        waiting.append(points)
        held += len(points)
        while held >= BLOCK:
            joined = np.concatenate(waiting)
            yield first, np.ascontiguousarray(joined[:BLOCK])
            first, held, waiting = first + BLOCK, held - BLOCK, [joined[BLOCK:]]
    if held:
        yield first, np.concatenate(waiting)


def _compare(
    claims: Claims,
    version: Version,
    points: F64,
    mine: Bool,
    first: int,
    findings: Findings,
    show: int,
) -> None:
    """Compare those events of a block that are answered by this version."""
    if not mine.any():
        return
    events = np.flatnonzero(mine)
    claimed = claims.of(first // BLOCK)
    if len(events) < len(mine):
        points, claimed = points[mine], claimed[mine[claimed // claims.rows]]
    expected = version.pairs(points, events, claims.rows)
    findings.note(first, expected, claimed, claims.rows, show)


def _unmatched(version: Version, points: F64, asked: Bool) -> Bool:
    """Return which of the selected events match nothing in this version."""
    free = asked.copy()
    if asked.any():
        events = np.flatnonzero(asked)
        free[events[np.diff(version.index.match(points[asked]).offsets) > 0]] = False
    return free


class _Result:
    """Reads a result: pairs to claims, and the version of each event."""

    def __init__(self, claims: Claims, ids: pa.Array, names: pa.Array, labels: list[int]):
        self.claims = claims
        self.version = np.full(len(ids), _NOWHERE, np.int64)
        self.unknown_events = self.unknown_subscriptions = 0
        self.unknown: list[str] = []
        self.has_empty = False
        self.lists = np.zeros(len(ids), np.int64)
        """Number of lists of each event."""
        self._events, self._names = Places(ids), Places(names)
        self._labels = labels

    def take(self, batch: pa.RecordBatch) -> None:
        rows = rows_of(batch)
        event = self._events.find(rows.events)
        self._note("event", rows.events, event)
        self.unknown_events += int((event < 0).sum())
        self._assign(batch, event)
        if rows.are_lists:
            self.has_empty |= bool((rows.sizes[event >= 0] == 0).any())
            self.lists += np.bincount(event[event >= 0], minlength=len(self.lists))
            event = np.repeat(event, rows.sizes)
        row = self._names.find(rows.subscriptions)
        self._note("subscription", rows.subscriptions, row)
        self.unknown_subscriptions += int((row < 0).sum())
        known = (event >= 0) & (row >= 0)
        self.claims.add(*((event, row) if known.all() else (event[known], row[known])))

    def _assign(self, batch: pa.RecordBatch, event: I64) -> None:
        """Remember by which version each event was answered."""
        known = event >= 0
        if len(self._labels) == 1:
            self.version[event[known]] = self._labels[0]
            return
        if "version" not in batch.schema.names:
            raise FileError(
                f"the subscriptions have {len(self._labels)} versions, and the result has no "
                f"column 'version' that names the one used; found: {batch.schema.names}"
            )
        label = batch.column("version").cast(pa.int64()).fill_null(_SEVERAL).to_numpy()
        strange = np.setdiff1d(label, self._labels)
        if len(strange):
            raise FileError(
                f"the result names version {strange[0]}; the subscriptions have the versions "
                f"{', '.join(map(str, self._labels[:10]))}"
            )
        places, labels = event[known], label[known]
        before = self.version[places]
        self.version[places] = labels
        clash = ((before != _NOWHERE) & (before != labels)) | (self.version[places] != labels)
        self.version[places[clash]] = _SEVERAL

    def _note(self, what: str, ids: pa.Array, places: I64) -> None:
        if len(self.unknown) < _KEPT:
            for index in np.flatnonzero(places < 0)[: _KEPT - len(self.unknown)].tolist():
                self.unknown.append(f"{what} {ids[index]}")


def _verdict(
    read: _Result, findings: Findings, ids: pa.Array, names: pa.Array, lost: Any, show: int
) -> Verdict:
    def sample(index: int, *rows: I64) -> Sample:
        kinds = [[names[row].as_py() for row in kind[:_KEPT].tolist()] for kind in rows]
        return Sample(ids[index].as_py(), *kinds)

    absent = lost | ((read.version == _NOWHERE) & read.has_empty)
    samples = [sample(*entry) for entry in sorted(findings.samples, key=lambda one: one[0])[:show]]
    others = [f"event {ids[place]} has no row" for place in np.flatnonzero(absent)[:_KEPT]]
    again = np.flatnonzero(read.lists > 1)
    others += [f"event {ids[place]} has {read.lists[place]} rows" for place in again[:_KEPT]]
    return Verdict(
        events=len(ids),
        pairs=findings.pairs,
        differing_events=findings.differing,
        missing_pairs=findings.missing,
        extra_pairs=findings.extra,
        pairs_twice=findings.twice,
        unknown_events=read.unknown_events,
        unknown_subscriptions=read.unknown_subscriptions,
        absent_events=int(absent.sum()),
        events_twice=len(again),
        events_of_several_versions=int((read.version == _SEVERAL).sum()),
        samples=samples,
        others=(read.unknown + others)[:show],
    )
