"""The current versions of a space's subscriptions, by name.

A name has a number, which it keeps when the subscription is replaced. By number there are the place
of the packed version, and the two values that edits need: the seq that made it and its consumer.
One thread writes; any thread reads.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import I64
from rangecast.server.state.edits import NEVER
from rangecast.server.state.versions.names import NameNumbers
from rangecast.server.state.versions.packed import FrozenRecords, PackedRecords
from rangecast.server.state.versions.version import NO_CONSUMER, Version

_GONE = -1
"""Place of a number whose subscription is gone."""


class Origin(NamedTuple):
    """Where the current version of a subscription came from."""

    born: int
    """The seq of the edit that made it."""
    consumer: int


class LiveVersions(Mapping[str, Version]):
    """Mapping from names to current versions; values come in order of birth."""

    def __init__(self) -> None:
        self.records = PackedRecords(Version)
        """Records of all versions, including those of ended consumers."""
        self._names = NameNumbers()
        self._places = array("q")
        self._born = array("q")
        self._consumers = array("i")
        self._edits = threading.Lock()

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter([version.name for version in sorted(self.values(), key=_number)])

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._names.get(name) is not None

    def __getitem__(self, name: str) -> Version:
        while True:
            number = self._names.get(name)
            if number is None:
                raise KeyError(name)
            place = self._places[number]
            version = None if place == _GONE else self.records.get(place)
            if version is not None:  # else it was replaced or removed in the meantime
                return version

    def values(self) -> CurrentVersions:  # type: ignore[override]
        """Return all versions as of now, in order of birth."""
        with self._edits:
            return CurrentVersions(np.array(self._places[:], np.int64), self.records.frozen())

    @property
    def memory(self) -> dict[str, int]:
        """Sizes in bytes: of the versions, of names, and of what is known by number."""
        by_number = 20 * len(self._places)
        return {"versions": self.records.memory, "names": self._names.memory, "places": by_number}

    def number(self, name: str) -> int | None:
        """Return the number of a subscription, if it exists."""
        return self._names.get(name)

    def origin(self, name: str) -> Origin | None:
        """Return what made the current version of a subscription, if it exists."""
        number = self._names.get(name)
        return None if number is None else Origin(self._born[number], self._consumers[number])

    def place(self, number: int) -> int:
        """Return the place of the current version of a subscription."""
        return self._places[number]

    def consumer(self, number: int) -> int:
        """Return the consumer of a subscription."""
        return self._consumers[number]

    def at(self, numbers: I64) -> list[Version]:
        """Return the versions of subscriptions, without those that are gone."""
        with self._edits:
            places, records = np.array(self._places[:], np.int64), self.records.frozen()
        wanted = places[numbers]
        return list(records.at(wanted[wanted != _GONE].tolist()))

    def numbers(self) -> tuple[I64, I64]:
        """Return the numbers of all subscriptions, ascending, and the consumer of each."""
        with self._edits:
            places, consumers = self._places[:], self._consumers[:]
        numbers = np.flatnonzero(np.array(places, np.int64) != _GONE)
        return numbers, np.array(consumers, np.int64)[numbers]

    def add(self, version: Version) -> int:
        """Make a version the current one of its name; return its place."""
        number = version.number
        with self._edits:
            place = self.records.append(version)
            self._make_room(number + 1)
            is_new = self._places[number] == _GONE
            self._places[number] = place
            self._born[number] = version.born
            self._consumers[number] = version.consumer
            if is_new:
                self._names.bind(version.name, number)
        return place

    def restore(self, versions: Sequence[Version], text: bytes | None = None) -> int:
        """Add saved versions, of which those that haven't ended are current and new.

        Returns the place of the first; `text`: their JSON, if it is known.
        """
        with self._edits:
            first = self.records.extend(versions, text)
            current = [version for version in versions if version.died == NEVER]
            if current:
                numbers = [version.number for version in current]
                self._make_room(max(numbers) + 1)
                for place, version in enumerate(versions, first):
                    if version.died == NEVER:
                        self._places[version.number] = place
                        self._born[version.number] = version.born
                        self._consumers[version.number] = version.consumer
                self._names.bind_many([version.name for version in current], numbers)
        return first

    def _make_room(self, least: int) -> None:
        if (more := least - len(self._places)) > 0:
            self._places.extend([_GONE] * more)
            self._born.extend([0] * more)
            self._consumers.extend([NO_CONSUMER] * more)

    def remove(self, name: str) -> None:
        """Remove a subscription; its version stays until it is released."""
        with self._edits:
            self._places[self._names.remove(name)] = _GONE

    def release(self, place: int) -> None:
        """Let a version go that isn't current any more."""
        with self._edits:
            self.records.release(place)


class CurrentVersions:
    """The versions that were current at one moment."""

    def __init__(self, places: I64, records: FrozenRecords[Version]):
        self._places = np.sort(places[places != _GONE])
        self._records = records

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Version]:
        return self._records.at(self._places.tolist())


def _number(version: Version) -> int:
    return version.number
