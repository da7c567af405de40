"""Answers as of an earlier seq or time, from histories that one thread builds and keeps."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, TypeVar

from rangecast.errors import UsageError, abbreviate
from rangecast.model.space import Space
from rangecast.server.delivery.messages import PositionError
from rangecast.server.log.base import Log, Unit
from rangecast.server.state.entries import SpaceEntry
from rangecast.server.state.history.base import Bases, units_of
from rangecast.server.state.history.versions import SpaceVersions
from rangecast.server.state.lineage import Lineage
from rangecast.server.state.registry import Name, RequestError
from rangecast.server.state.space_index import SpaceIndex

T = TypeVar("T")
MAX_SPACES = 4
"""Spaces whose histories are kept; that of the space asked about first is dropped."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class AsOf(NamedTuple):
    """A seq, or a time in microseconds since 1970: edits up to it are included."""

    seq: int | None
    time: int | None = None


class DroppedSeqError(RequestError):
    """The subscriptions at a seq or time can't be rebuilt: the log before was dropped."""

    def __init__(self, moment: object, earliest: int):
        super().__init__(
            410,
            f"the subscriptions as of {moment} are no longer known: the log before was dropped\n"
            f"  hint: the earliest seq is {earliest}",
        )
        self.earliest = earliest


class Histories:
    """Histories of the spaces of a server. Any thread may ask."""

    def __init__(self, log: Log, bases: Bases, lineage: Lineage, durable: Callable[[], int]):
        self._log, self._bases, self._lineage, self._durable = log, bases, lineage, durable
        self._versions: dict[Name, SpaceVersions] = {}
        """The last one was used last."""
        self._thread = ThreadPoolExecutor(1, "rangecast-history")
        self._is_closed = False

    def close(self) -> None:
        """Abandon all questions."""
        self._is_closed = True
        self._thread.shutdown(wait=False, cancel_futures=True)

    def read(self, text: str, now: int) -> AsOf:
        """Return the seq or the time that a text names; reject one that is still to come.

        text   a seq, a position `epoch:seq`, or an ISO 8601 timestamp with a zone
        now    the time, in microseconds since 1970
        """
        last = self._durable()
        if text.isascii() and text.isdecimal() and len(text) <= 18:
            if int(text) > last:
                raise PositionError(f"as_of is {text}, after the end of the log, seq {last}")
            return AsOf(int(text))
        time = _time(text)
        if time is None:
            if text.count(":") == 1 and "-" not in text:
                return AsOf(self._lineage.seq_of(text, last, self._log.first))
            raise UsageError(
                "as_of must be a seq, a position, or an ISO 8601 timestamp with a zone, such as "
                f"2026-01-31T09:30:00Z; given: {abbreviate(text)}"
            )
        if time > now:
            raise UsageError(
                f"as_of is {text}, which is still to come: it is {_shown(now)} on the server\n"
                "  hint: leave as_of out for the current subscriptions"
            )
        return AsOf(None, time)

    def answer(self, entry: SpaceEntry, as_of: AsOf, work: Callable[[SpaceIndex], T]) -> Future[T]:
        """Call a function with the index of a space as of a past time; return a future."""
        return self._thread.submit(lambda: work(self._index_at(entry, as_of)))

    def _index_at(self, entry: SpaceEntry, as_of: AsOf) -> SpaceIndex:
        seq = as_of.seq if as_of.time is None else self._seq_at(as_of.time)
        assert seq is not None
        versions = self._versions_at(entry, seq)
        versions.use_space(entry.space)
        try:
            for unit in units_of(self._log, versions.seq, seq):
                versions.take(unit)
                if self._is_closed:
                    raise RequestError(503, "the server is stopping")
        except BaseException:  # what it has may not be complete
            del self._versions[entry.tenant, entry.name]
            raise
        versions.drop_excess()
        if seq < versions.first:
            raise self._dropped(as_of, versions.first)
        return versions.index_at(seq, as_of.time)

    def _versions_at(self, entry: SpaceEntry, seq: int) -> SpaceVersions:
        """Return versions of a space from which those of a seq can be derived."""
        name = entry.tenant, entry.name
        if seq < self._earliest():
            raise self._dropped(AsOf(seq), self._earliest())
        versions = self._versions.pop(name, None)
        if (
            versions is None
            or seq < versions.first
            or (versions.seq < seq and versions.seq < self._log.first - 1)
        ):
            space = Space.from_definition(entry.space.definition())
            base = self._bases.newest(seq, {name: space})
            if base is None:
                raise self._dropped(AsOf(seq), self._earliest())
            versions = SpaceVersions(base[1].spaces[name], base[1], base[0])
        self._versions[name] = versions
        if len(self._versions) > MAX_SPACES:
            del self._versions[next(iter(self._versions))]
        return versions

    def _earliest(self) -> int:
        return min(self._bases.seqs(), default=self._durable())

    def _seq_at(self, time: int) -> int:
        """Return the last seq that was written up to a time."""
        first = self._log.first
        oldest = self._unit_with(first)
        if oldest is None or oldest.at > time:
            if first == 1:
                return 0
            raise self._dropped(AsOf(None, time), self._earliest())
        begin, end = oldest.last, self._durable()
        while begin < end:
            unit = self._unit_with((begin + end) // 2 + 1)
            if unit is None or unit.at > time:
                end = (begin + end) // 2 if unit is None else unit.first - 1
            else:
                begin = unit.last
        return begin

    def _unit_with(self, seq: int) -> Unit | None:
        """Return the unit of a seq; `None` if the log doesn't have it."""
        return next(iter(self._log.read(seq - 1, 1)), None)

    def _dropped(self, as_of: AsOf, earliest: int) -> DroppedSeqError:
        if as_of.time is not None:
            return DroppedSeqError(_shown(as_of.time), earliest)
        return DroppedSeqError(f"seq {as_of.seq}", earliest)


def _time(text: str) -> int | None:
    """Return a timestamp in microseconds since 1970; `None` if the text isn't one."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        raise UsageError(
            f"as_of is {text}, without a zone\n"
            "  hint: append Z for UTC, or an offset such as +01:00"
        )
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _shown(time: int) -> str:
    return (_EPOCH + timedelta(microseconds=time)).isoformat()
