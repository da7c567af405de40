"""Subscriptions as they were at any earlier time: match and rank as of then.

A subscription holds from the time at which it came to that at which it left. That is a range on one
more attribute, so all versions of all subscriptions are boxes of one set, and an event is asked
about at a time: a point with one more coordinate. It takes as long as a match of that set, with one
more attribute. (Paper 003 compares its structures with multi-version indexes for the same reason.)

    history = History(space)
    history.subscribe("cheap", "price < 10", at=1)
    history.replace("cheap", "price < 5", at=7)
    history.match({"price": 8}, as_of=3)        # ["cheap"]
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rangecast.engine import Engine
from rangecast.errors import DuplicateIdError, UnknownIdError, UsageError
from rangecast.model.attributes.base import Number
from rangecast.model.sets.members import Id, as_id
from rangecast.model.space import Space
from rangecast.model.validation.arguments import check_finite
from rangecast.model.validation.inputs import as_filter
from rangecast.store.versions import Versions

_TIME = "valid_at"
"""The attribute that a space doesn't have."""


class _Version:
    """A subscription between two edits of it."""

    __slots__ = ("filter", "number", "score", "since")

    def __init__(self, number: int, text: str, score: float, since: float):
        self.number, self.filter, self.score, self.since = number, text, score, since


class History:
    """All versions of a set of subscriptions. Edits come in the order of their times."""

    def __init__(self, space: Space, *, index: str = "auto", rank_index: str = "auto"):
        if _TIME in space.names:
            raise UsageError(f"the attribute {_TIME!r} is reserved for the history")
        self.space = space
        over = Space([*space.attributes, Number(_TIME)])
        self._engine = Engine(over, index=index, rank_index=rank_index)
        self._current: dict[Id, _Version] = {}
        self._ids: list[Id] = []
        """By number of a version, its subscription."""
        self._ends: dict[int, float] = {}
        """By number, when versions ended."""
        self.latest = -math.inf
        """The time of the last edit."""

    @classmethod
    def of(cls, versions: Versions, **options: Any) -> History:
        """Return the history of committed versions; times are their numbers."""
        numbers = versions.all()
        if not numbers:
            raise UsageError("there is no history without versions")
        history = cls(versions.load(numbers[-1])[1], **options)
        for version in numbers:
            boxes, space = versions.load(version)
            engine = Engine(space)
            engine.subscribe_many(boxes)
            history._apply_difference(engine, float(version))
        return history

    def _apply_difference(self, engine: Engine, at: float) -> None:
        """Record the edits that turn the current set into that of `engine`, as of `at`."""
        for gone in [id_ for id_ in self._current if id_ not in engine]:
            self.unsubscribe(gone, at=at)
        for id_ in engine:
            new, old = engine[id_], self._current.get(id_)
            if old is None:
                self.subscribe(id_, new.filter, at=at, score=new.score)
            elif (old.filter, old.score) != (str(as_filter(new.filter, self.space)), new.score):
                self.replace(id_, new.filter, at=at, score=new.score)

    def __len__(self) -> int:
        """Return how many subscriptions there are after the last edit."""
        return len(self._current)

    @property
    def versions(self) -> int:
        """Number of versions that are kept."""
        return len(self._engine)

    # ---- edits

    def subscribe(self, subscription: Id, filter: Any, *, at: float, score: float = 0.0) -> None:  # noqa: A002
        """Add a subscription that is valid from `at` on."""
        name = as_id(subscription)
        if name in self._current:
            raise DuplicateIdError(f"subscription {name!r} already exists")
        self._begin(name, str(as_filter(filter, self.space)), score, self._time(at))

    def unsubscribe(self, subscription: Id, *, at: float) -> None:
        """End a subscription: it doesn't match from `at` on."""
        version = self._known(subscription)
        self._end(version, self._time(at))
        del self._current[as_id(subscription)]

    def replace(
        self,
        subscription: Id,
        filter: Any,  # noqa: A002
        *,
        at: float,
        score: float | None = None,
    ) -> None:
        """Give a subscription another filter from a time on; it counts as arriving then."""
        version = self._known(subscription)
        text, time = str(as_filter(filter, self.space)), self._time(at)
        self._end(version, time)
        self._begin(as_id(subscription), text, version.score if score is None else score, time)

    def forget(self, before: float) -> int:
        """Drop the versions that ended by `before`; return how many. Earlier answers miss them."""
        gone = [number for number, end in self._ends.items() if end <= before]
        for number in gone:
            del self._ends[number]
        return self._engine.unsubscribe_many(gone) if gone else 0

    def _time(self, at: float) -> float:
        time = check_finite("at", at)
        if time < self.latest:
            raise UsageError(
                f"edits must be in order of time: the last was at {self.latest}; given: {at!r}"
            )
        self.latest = time
        return time

    def _known(self, subscription: Id) -> _Version:
        version = self._current.get(as_id(subscription))
        if version is None:
            raise UnknownIdError(f"there is no subscription {subscription!r}")
        return version

    def _begin(self, name: Id, text: str, score: float, time: float) -> None:
        number = len(self._ids)
        self._engine.subscribe(number, f"({text}) and {_TIME} >= {time!r}", score=score)
        self._ids.append(name)
        self._current[name] = _Version(number, text, score, time)

    def _end(self, version: _Version, time: float) -> None:
        if version.since == time:  # it never held
            self._engine.unsubscribe(version.number)
            return
        lifetime = f"{_TIME} >= {version.since!r} and {_TIME} < {time!r}"
        self._engine.replace(version.number, f"({version.filter}) and {lifetime}")
        self._ends[version.number] = time

    # ---- answers

    def match(
        self,
        event: Mapping[str, Any],
        *,
        as_of: float,
        ignore_unknown: bool = False,
        nan: str = "error",
    ) -> list[Id]:
        """Return the subscriptions that matched an event at a time, in order of arrival.

        The options are those of `Engine.match`.
        """
        timed = self._event_at(event, as_of)
        numbers = self._engine.match(timed, ignore_unknown=ignore_unknown, nan=nan)
        return [self._ids[int(number)] for number in numbers]

    def rank(
        self,
        event: Mapping[str, Any],
        k: int = 10,
        *,
        as_of: float,
        ignore_unknown: bool = False,
        nan: str = "error",
    ) -> list[tuple[Id, float]]:
        """Return the top k subscriptions of an event at a time, by score, best first."""
        timed = self._event_at(event, as_of)
        ranking = self._engine.rank(timed, k, ignore_unknown=ignore_unknown, nan=nan)
        return [(self._ids[int(number)], score) for number, score in ranking]

    def count(
        self,
        event: Mapping[str, Any],
        *,
        as_of: float,
        ignore_unknown: bool = False,
        nan: str = "error",
    ) -> int:
        """Return how many subscriptions matched an event at a time."""
        timed = self._event_at(event, as_of)
        return self._engine.count(timed, ignore_unknown=ignore_unknown, nan=nan)

    def _event_at(self, event: Mapping[str, Any], as_of: float) -> dict[str, Any]:
        """Return an event with the time that it is matched at."""
        return {**event, _TIME: check_finite("as_of", as_of)}
