"""Snapshots: the state at one seq, so that a start needs only the log after it.

    data/snapshot-<seq>/state.json     spaces, boards, consumers, tokens, dedup
    data/snapshot-<seq>/versions-<n>.jsonl  subscriptions of a space, in order of birth
    data/snapshot-<seq>/space-<n>/     boxes of a space's subscriptions
    data/snapshot-<seq>/tracks-<n>/    tracked objects of a space
    data/snapshot-<seq>/sums.json      checksums of these files
    data/history-<seq>/                the same without boxes and tracks: see `history.base`

Snapshots are written atomically. A damaged one isn't used: an earlier snapshot, or the log from its
beginning, is used instead.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import inf
from pathlib import Path
from typing import Any

import msgspec

from rangecast.engine import Engine
from rangecast.errors import SnapshotError
from rangecast.liveset import boxes_of_view
from rangecast.model.io.durable import sync_folder, write_bytes
from rangecast.model.sets.members import Id
from rangecast.model.snapshot import MANIFEST, load_boxes, save_boxes
from rangecast.model.space import Space
from rangecast.server.security.private_folder import FOLDER, tighten
from rangecast.server.state.boards import BoardEntry, Interest, PlacedObject
from rangecast.server.state.dedup import Deduplicator, PreviousRequest
from rangecast.server.state.edits import NEVER, PutBoard, PutBroker
from rangecast.server.state.entries import (
    Consumer,
    DeadLetter,
    Epoch,
    SpaceEntry,
    Token,
)
from rangecast.server.state.registry import Name, Registry
from rangecast.server.state.retained import RetainedBytes
from rangecast.server.state.space_index import SpaceIndex
from rangecast.server.state.tracks.spaces import SavedTracks, SpaceTracks, Tracks
from rangecast.server.state.tracks.transitions import Derived
from rangecast.server.state.versions.files import digest_of, restore_versions, write_versions
from rangecast.server.state.versions.version import Version
from rangecast.track.saved import load_tracker, save_tracker

VERSION, READABLE = 2, (1, 2)
"""Format version of a snapshot, and those that can be read."""
_STATE, _SUMS = "state.json", "sums.json"
KEPT = 2
"""Snapshots that stay: the newest, and one before it."""
SNAPSHOT, BASE = "snapshot", "history"
"""Kinds of folders, which their names begin with."""
_NAME = re.compile(r"(\w+)-(\d{20})")


class _Space(msgspec.Struct, array_like=True):
    tenant: str
    name: str
    number: int
    since: int
    next_number: int
    live: list[Version]
    """Subscriptions in format version 1; since then they have a file of their own."""
    track: dict[str, Any] | None = None
    pending: list[Derived] = []
    """Transitions not yet in the log."""
    notices: dict[str, Any] | None = None
    """Policies, and transitions that wait by them: see `tracks.Notices`."""


class _Board(msgspec.Struct, array_like=True):
    made: PutBoard
    since: int
    objects: list[tuple[Id, int, float, list[float | None]]]
    """Id, arrival, value and position of each; a missing value is null."""
    live: list[Interest]


class _Consumer(msgspec.Struct, array_like=True):
    tenant: str
    name: str
    number: int
    source: tuple[str, str]
    """Its tenant, and the label of its space or board."""
    since: int
    cursor: int
    delivery: dict[str, Any]
    on_gap: str
    max_per_event: int
    now_from: int
    dead: list[Version]
    stopped: str
    dead_letters: list[DeadLetter]
    moved: int
    ended: list[Interest]
    max_per_second: int
    policy: dict[str, Any] | None = None


class _Version(msgspec.Struct):
    version: int


class State(msgspec.Struct):
    """The state at one seq, without boxes."""

    version: int
    epoch: str
    seq: int
    chain: str
    spaces: list[_Space]
    consumers: list[_Consumer]
    consumer_count: int
    tokens: list[Token]
    had_token: bool
    tenants: dict[str, dict[str, int]]
    requests: dict[str, PreviousRequest]
    ids: list[str]
    offsets: dict[str, int]
    boards: list[_Board]
    broker: PutBroker | None
    retained: dict[str, list[tuple[int, int]]]
    """Bytes that the log keeps, by tenant: see `quotas.Retained`."""
    epochs: list[Epoch]
    marks: dict[str, str]


class SnapshotState:
    """The complete state at one seq, in memory: taken quickly, written later."""

    def __init__(
        self,
        registry: Registry,
        indexes: dict[int, SpaceIndex],
        deduplicator: Deduplicator,
        tracks: Tracks,
        position: tuple[str, int, bytes],
    ):
        epoch, seq, chain = position
        self.seq = seq
        self._tracks = {number: tracker.saved() for number, tracker in tracks.spaces.items()}
        self.state = State(
            VERSION,
            epoch,
            seq,
            chain.hex(),
            [
                _Space(
                    *_fields(space),
                    live=[],
                    track=space.track,
                    pending=self._pending(space.number),
                    notices=self._notices(space.number),
                )
                for space in registry.spaces.values()
            ],
            [
                _Consumer(
                    consumer.tenant,
                    consumer.name,
                    consumer.number,
                    (consumer.source.tenant, consumer.source.label),
                    consumer.since,
                    consumer.cursor,
                    consumer.delivery,
                    consumer.on_gap,
                    consumer.max_per_event,
                    consumer.now_from,
                    consumer.versions.ended(),
                    consumer.stopped,
                    list(consumer.dead_letters.values()),
                    consumer.moved,
                    [msgspec.structs.replace(v) for v in consumer.interests if v.died != NEVER],
                    consumer.max_per_second,
                    consumer.policy,
                )
                for consumer in registry.consumers.values()
            ],
            len(registry.numbered),
            list(registry.tokens.values()),
            registry.had_token,
            dict(registry.tenants),
            dict(deduplicator.requests),
            list(deduplicator.ids),
            dict(deduplicator.offsets),
            [_board(board) for board in registry.boards.values()],
            registry.broker,
            {tenant: list(parts) for tenant, parts in registry.retained.parts.items()},
            list(registry.epochs),
            dict(deduplicator.marks),
        )
        self._versions = {entry.number: entry.live.values() for entry in registry.spaces.values()}
        self._views = [
            (index.entry.number, index.engine._view, index.engine.space)
            for index in indexes.values()
        ]

    def _pending(self, space: int) -> list[Derived]:
        return self._tracks[space].pending if space in self._tracks else []

    def _notices(self, space: int) -> dict[str, Any] | None:
        return self._tracks[space].notices if space in self._tracks else None

    def write(self, folder: Path, kind: str = SNAPSHOT, kept: int = KEPT) -> None:
        """Write a snapshot, and delete older ones."""
        target = path_of(folder, self.seq, kind)
        partial = folder / f".{target.name}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        try:
            partial.mkdir(mode=FOLDER)
            for number, view, space in self._views:
                save_boxes(partial / f"space-{number}", boxes_of_view(view, space), space)
            for number, versions in self._versions.items():
                write_versions(partial / _versions_name(number), versions)
            write_bytes(partial / _STATE, msgspec.json.encode(self.state))
            for number, saved in self._tracks.items():
                save_tracker(partial / f"tracks-{number}", saved.tracker, overwrite=False)
            names = [_STATE, *(f"space-{number}/{MANIFEST}" for number, _, _ in self._views)]
            names += [f"tracks-{number}/{MANIFEST}" for number in self._tracks]
            names += map(_versions_name, self._versions)
            sums = {name: digest_of(partial / name) for name in names}
            write_bytes(partial / _SUMS, msgspec.json.encode(sums))
            tighten(partial)
            sync_folder(partial)
            shutil.rmtree(target, ignore_errors=True)  # if there is one, it can't be read
            partial.rename(target)
            sync_folder(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        for seq in snapshots(folder, kind)[:-kept]:
            shutil.rmtree(path_of(folder, seq, kind), ignore_errors=True)


def _fields(entry: SpaceEntry) -> tuple[str, str, int, int, int]:
    return entry.tenant, entry.name, entry.number, entry.since, entry.next_number


def _board(entry: BoardEntry) -> _Board:
    objects = [
        (item.id, item.arrival, item.value, [None if at == inf else at for at in item.place])
        for item in entry.objects.values()
    ]
    live = [msgspec.structs.replace(item) for item in entry.live.values()]
    return _Board(entry.made, entry.since, objects, live)


def _board_entry(board: _Board) -> BoardEntry:
    objects = {
        str(id_): PlacedObject(
            id_, arrival, value, tuple(inf if at is None else at for at in position)
        )
        for id_, arrival, value, position in board.objects
    }
    live = {id_.name: id_ for id_ in board.live}
    return BoardEntry(board.made, board.since, objects, live)


def path_of(folder: Path, seq: int, kind: str = SNAPSHOT) -> Path:
    """Return the folder of a snapshot."""
    return folder / f"{kind}-{seq:020}"


def snapshots(folder: Path, kind: str = SNAPSHOT) -> list[int]:
    """Return the seqs of the snapshots in a folder, ascending."""
    names = (_NAME.fullmatch(path.name) for path in folder.iterdir())
    return sorted(int(match[2]) for match in names if match and match[1] == kind)


def state_of(path: Path) -> State:
    """Return the state of a snapshot, without boxes; reject a damaged one."""
    try:
        text = (path / _STATE).read_bytes()
        _check_sums(path, text)
        return _state(path, text)
    except (OSError, msgspec.DecodeError) as error:
        raise SnapshotError(f"{path}: can't be read: {error}") from None


def registry_of(state: State, path: Path, spaces: Mapping[Name, Space]) -> Registry:
    """Return the subscriptions of some spaces of a snapshot, and their consumers."""
    registry, items = Registry(), list[_Space]()
    for name, space in spaces.items():
        registry.spaces[name] = SpaceEntry(*name, len(registry.spaces), space, 0)
    for item in state.spaces:
        if (entry := registry.spaces.get((item.tenant, item.name))) is None:
            continue
        entry.since, entry.next_number = item.since, item.next_number
        items.append(item)
    registry.numbered = [None] * state.consumer_count
    for kept in state.consumers:
        if kept.source in registry.spaces:
            consumer = Consumer(
                kept.tenant,
                kept.name,
                kept.number,
                registry.spaces[kept.source],
                kept.since,
                kept.cursor,
            )
            registry.consumers[kept.tenant, kept.name] = consumer
            registry.numbered[kept.number] = consumer
    for item in items:
        _restore_versions(registry, registry.spaces[item.tenant, item.name], path, item)
    return registry


def _restore_versions(
    registry: Registry,
    entry: SpaceEntry,
    path: Path,
    item: _Space,
    ended: Sequence[Version] = (),
    index: SpaceIndex | None = None,
) -> None:
    """Put the current versions of a space, and those that have ended, into place.

    index   notes the current ones
    """
    file = path / _versions_name(item.number)
    for first, versions in restore_versions(file, entry.live, [*item.live, *ended]):
        for at, version in enumerate(versions, first):
            if version.expires and version.died == NEVER:
                entry.expiring[version.name] = version.expires
            if (owner := registry.owner(version)) is not None:
                owner.versions.append(at, version.born, version.died)
        if index is not None:
            index.note([version for version in versions if version.died == NEVER])
    registry.counts[entry.tenant] = registry.counts.get(entry.tenant, 0) + len(entry.live)


def _versions_name(space: int) -> str:
    return f"versions-{space}.jsonl"


Opened = tuple[State, Registry, dict[int, SpaceIndex], Deduplicator, Tracks]


def opened(folder: Path, seq: int) -> Opened:
    """Return the state of a snapshot; reject a damaged one."""
    path = path_of(folder, seq)
    try:
        text = (path / _STATE).read_bytes()
        _check_sums(path, text)
        with ThreadPoolExecutor(1) as pool:  # builds indexes while this thread reads the state
            loaded = {file.name: _LoadedSpace(file, pool) for file in path.glob("space-*")}
            state = _state(path, text)
            if state.seq != seq:
                raise SnapshotError(f"{path}: is of seq {state.seq}")
            bytes.fromhex(state.chain)
            return _built(path, state, loaded)
    except SnapshotError:
        raise
    except (OSError, msgspec.DecodeError) as error:
        raise SnapshotError(f"{path}: can't be read: {error}") from None
    except Exception as error:  # written by a faulty server: anything may be wrong
        raise SnapshotError(f"{path}: is damaged: {type(error).__name__}: {error}") from error


def _check_sums(path: Path, text: bytes) -> None:
    """Raise a `SnapshotError` if a file doesn't match its checksum."""
    try:
        sums = msgspec.json.decode((path / _SUMS).read_bytes(), type=dict[str, str])
    except FileNotFoundError:
        raise SnapshotError(f"{path}: {_SUMS} is missing") from None
    except msgspec.DecodeError:
        raise SnapshotError(f"{path}: {_SUMS} is damaged") from None
    for name, expected in (sums or {_STATE: ""}).items():
        digest = _digest(text) if name == _STATE else digest_of(path / name)
        if digest != expected:
            raise SnapshotError(f"{path}: {name} is damaged")


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


class _LoadedSpace:
    """The boxes of a space and their engine, loaded by a thread."""

    def __init__(self, path: Path, pool: ThreadPoolExecutor):
        self._boxes = pool.submit(load_boxes, path)
        self.engine = pool.submit(self._build)

    @property
    def space(self) -> Space:
        return self._boxes.result()[1]

    def _build(self) -> Engine:
        boxes, space = self._boxes.result()
        engine = Engine(space)
        engine.subscribe_many(boxes)
        return engine


def _built(path: Path, state: State, loaded: Mapping[str, _LoadedSpace]) -> Opened:
    """Build the registry, the indexes and the tracks from a state."""
    tracks = Tracks()
    registry, deduplicator = Registry(), Deduplicator()
    indexes: dict[int, SpaceIndex] = {}
    for item in state.spaces:
        space = loaded[f"space-{item.number}"].space
        registry.spaces[item.tenant, item.name] = SpaceEntry(
            item.tenant,
            item.name,
            item.number,
            space,
            item.since,
            next_number=item.next_number,
            track=item.track,
        )
    interests: dict[int, list[Interest]] = {}
    for shelved in state.boards:
        board = _board_entry(shelved)
        registry.boards[board.tenant, board.name] = board
        registry.counts[board.tenant] = registry.counts.get(board.tenant, 0) + len(board.live)
        for interest in shelved.live:
            interests.setdefault(interest.consumer, []).append(interest)
    registry.space_count = 1 + max((item.number for item in state.spaces), default=-1)
    registry.numbered = [None] * state.consumer_count
    ended: dict[tuple[str, str], list[Version]] = {}
    for kept in state.consumers:
        consumer = Consumer(
            kept.tenant,
            kept.name,
            kept.number,
            _source(registry, *kept.source),
            kept.since,
            kept.cursor,
            kept.delivery,
            kept.on_gap,
            kept.max_per_event,
            kept.now_from,
            kept.stopped,
            {dead_letter.seq: dead_letter for dead_letter in kept.dead_letters},
            kept.moved,
            sorted(kept.ended + interests.get(kept.number, []), key=lambda item: item.born),
            kept.max_per_second,
            kept.policy,
        )
        registry.consumers[kept.tenant, kept.name] = consumer
        registry.numbered[kept.number] = consumer
        ended.setdefault(kept.source, []).extend(kept.dead)
    for item in state.spaces:
        entry = registry.spaces[item.tenant, item.name]
        mine = ended.get((item.tenant, item.name), [])
        indexes[item.number] = index = SpaceIndex(entry)
        _restore_versions(registry, entry, path, item, mine, index)
        if item.track is not None:
            tracker = load_tracker(path / f"tracks-{item.number}")
            saved = SavedTracks(tracker, item.pending, item.notices)
            tracks.spaces[item.number] = SpaceTracks.restored(entry, saved)
    registry.tokens = {token.digest: token for token in state.tokens}
    registry.had_token = state.had_token
    registry.tenants = state.tenants
    registry.broker = state.broker
    registry.epochs = tuple(state.epochs)
    registry.retained = RetainedBytes(state.retained)
    deduplicator.requests.update(state.requests)
    deduplicator.ids.update(dict.fromkeys(state.ids))
    deduplicator.offsets.update(state.offsets)
    deduplicator.marks.update(state.marks)
    for number, index in indexes.items():
        index.engine = loaded[f"space-{number}"].engine.result()
    return state, registry, indexes, deduplicator, tracks


def _state(path: Path, text: bytes) -> State:
    try:
        state = msgspec.json.decode(text, type=State)
        written = state.version
    except msgspec.ValidationError:
        written = msgspec.json.decode(text, type=_Version).version
        if written in READABLE:
            raise
    if written not in READABLE:
        raise SnapshotError(
            f"{path}: has format version {written}; this version of rangecast reads "
            f"{' and '.join(map(str, READABLE))}"
        )
    return state


def _source(registry: Registry, tenant: str, label: str) -> SpaceEntry | BoardEntry:
    """Return the space or board with a label."""
    board = label.partition("/")[2]
    return registry.boards[tenant, board] if board else registry.spaces[tenant, label]
