"""Packed versions of subscriptions, compared with plain dicts and lists of objects."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import msgspec
import numpy as np
import pytest

from rangecast.server.state.edits import NEVER
from rangecast.server.state.versions.files import restore_versions, write_versions
from rangecast.server.state.versions.live import LiveVersions
from rangecast.server.state.versions.owned import OwnedVersions
from rangecast.server.state.versions.packed import BLOCK, PackedRecords
from rangecast.server.state.versions.version import NO_CONSUMER, Version

as_tuple = msgspec.structs.astuple


def version(number: int, born: int, consumer: int = NO_CONSUMER) -> Version:
    text = f"price >= {born / 7:.4f} and price <= {born / 3:.4f} and who = 'ü{number}'"
    weights = {"price": born / 3} if born % 5 == 0 else {}
    return Version(number, f"s{number}", text, consumer, born, NEVER, born / 9, weights)


@pytest.mark.parametrize("seed", range(4))
def test_versions_are_those_of_a_dict(seed: int) -> None:
    dice = random.Random(seed)
    live, plain = LiveVersions(), dict[str, Version]()
    owned = [OwnedVersions(live) for _ in range(3)]
    had: list[list[tuple[Version, int]]] = [[] for _ in owned]  # version, end
    places: dict[int, int] = {}
    count = 0

    def end(old: Version, seq: int) -> None:
        place = places.pop(old.number)
        if old.consumer == NO_CONSUMER:
            live.release(place)
            return
        owned[old.consumer].end(place, seq)
        mine = had[old.consumer]
        mine[:] = [(v, seq if v is old else died) for v, died in mine]

    for seq in range(1, 1500):
        name = dice.choice(list(plain)) if plain and dice.random() < 0.6 else ""
        if name and dice.random() < 0.5:
            old = plain.pop(name)
            live.remove(name)
            end(old, seq)
            continue
        if dice.random() < 0.02:
            mine = dice.randrange(3)
            first = seq - dice.randrange(200)
            owned[mine].forget(first)
            had[mine] = [(v, died) for v, died in had[mine] if died > first]
        number = plain[name].number if name else count
        count += not name
        new = version(number, seq, dice.randrange(-1, 3))
        place = live.add(new)
        if name:
            end(plain[name], seq)
        plain[new.name], places[number] = new, place
        if new.consumer != NO_CONSUMER:
            owned[new.consumer].append(place, seq)
            had[new.consumer].append((new, NEVER))
    born = sorted(plain.values(), key=lambda item: item.born)
    assert list(live) == sorted(plain, key=lambda name: plain[name].number)
    assert len(live) == len(live.values()) == len(plain)
    assert [*map(as_tuple, live.values())] == [*map(as_tuple, born)]
    assert {name: as_tuple(live[name]) for name in live} == {
        name: as_tuple(item) for name, item in plain.items()
    }
    numbers, consumers = live.numbers()
    by_number = sorted(plain.values(), key=lambda item: item.number)
    assert numbers.tolist() == [item.number for item in by_number]
    assert consumers.tolist() == [item.consumer for item in by_number]
    assert [*map(as_tuple, live.at(numbers[::3]))] == [*map(as_tuple, by_number[::3])]
    assert live.at(np.array([n for n in range(count) if n not in numbers])) == []
    assert live.get("none") is None
    assert live.origin("none") is None
    for mine, kept in zip(owned, had, strict=True):
        expected = [as_tuple(item.ended(died)) for item, died in kept]
        assert len(mine) == len(expected)
        assert [*map(as_tuple, mine)] == expected
        assert mine.live_count == sum(died == NEVER for _, died in kept)
        assert [as_tuple(item) for item in mine.ended()] == [
            values for values in expected if values[5] != NEVER
        ]
        some = [place for place, _ in mine.since(700)]
        assert [as_tuple(item) for _, item in mine.since(700)] == [
            values for values in expected if values[4] > 700
        ]
        ends = [died for item, died in kept if item.born > 700]
        assert mine.died(np.array([*some, 10**6, 10**6 + 1], np.int64)).tolist() == [*ends, 0, 0]


@pytest.mark.parametrize("size", [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK])
def test_records_of_a_line_have_their_places_whatever_its_length(size: int) -> None:
    """A snapshot may have been written with blocks of another size."""
    records, versions = PackedRecords(Version), [version(n, n, 0) for n in range(3 * size)]
    for first in range(0, len(versions), size):
        line = versions[first : first + size]
        assert records.extend(line, msgspec.json.encode(line)) == first
    stored = [records.get(place) for place in range(len(versions))]
    assert [as_tuple(record) for record in stored if record] == [*map(as_tuple, versions)]


def test_memory_follows_the_records_that_stay() -> None:
    records = PackedRecords(Version)
    places = [records.append(version(number, number)) for number in range(100 * BLOCK)]
    full = records.memory
    assert full < 60 * len(places)
    for place in places:
        if place % BLOCK:
            records.release(place)
    assert records.memory < full / 5
    assert [as_tuple(records.get(place)) for place in places[::BLOCK]] == [
        as_tuple(version(number, number)) for number in range(0, len(places), BLOCK)
    ]
    for place in places[::BLOCK]:
        records.release(place)
    assert records.memory <= 100 * 16
    assert records.get(places[0]) is None


def test_what_is_frozen_stays_as_it_was() -> None:
    live = LiveVersions()
    for number in range(3 * BLOCK + 7):
        live.add(version(number, number))
    values = live.values()
    expected = [as_tuple(item) for item in live.values()]
    for number in range(3 * BLOCK + 7):
        place = live.place(number)
        live.remove(f"s{number}")
        live.release(place)
    assert [as_tuple(item) for item in values] == expected
    assert list(live.values()) == []


def test_readers_see_a_version_while_it_is_replaced() -> None:
    live = LiveVersions()
    for number in range(BLOCK):
        live.add(version(number, number))
    stop = threading.Event()
    seen: list[list[tuple[int, int]]] = [[], []]

    def read(mine: list[tuple[int, int]]) -> None:
        while not stop.is_set():
            mine.append((live["s5"].born, len(list(live.values()))))

    threads = [threading.Thread(target=read, args=(mine,)) for mine in seen]
    for thread in threads:
        thread.start()
    for born in range(BLOCK, 200 * BLOCK):
        number = born % 8
        before = live.place(number)
        live.add(version(number, born))
        live.release(before)
    stop.set()
    for thread in threads:
        thread.join()
    assert all(mine == sorted(mine) and mine for mine in seen)
    assert {count for mine in seen for _, count in mine} == {BLOCK}


def test_files_have_what_was_written(tmp_path: Path) -> None:
    versions = [version(number, number) for number in range(2 * BLOCK + 3)]
    write_versions(tmp_path / "v", versions)
    live = LiveVersions()
    blocks = list(restore_versions(tmp_path / "v", live, []))
    assert [place for place, _ in blocks] == [0, BLOCK, 2 * BLOCK]
    assert [as_tuple(one) for _, block in blocks for one in block] == [*map(as_tuple, versions)]
    write_versions(tmp_path / "none", [])
    assert list(restore_versions(tmp_path / "none", LiveVersions(), [])) == []


@pytest.mark.parametrize("ended", [0, 1, 2 * BLOCK + 5])
@pytest.mark.parametrize("count", [0, 1, BLOCK - 1, BLOCK, 5 * BLOCK, 5 * BLOCK + 9])
def test_restored_versions_are_those_that_were_added(
    tmp_path: Path, count: int, ended: int
) -> None:
    dice = random.Random(count)
    saved = [version(number, 2 * number + 1, number % 3 - 1) for number in range(count)]
    dead = [version(count + at, 2 * dice.randrange(count + 9)).ended(10**6) for at in range(ended)]
    write_versions(tmp_path / "v", saved)
    live, places = LiveVersions(), dict[int, int]()
    for first, block in restore_versions(tmp_path / "v", live, dead):
        places |= {item.number: place for place, item in enumerate(block, first)}
    new = [version(count + ended + at, 10**7 + at) for at in range(BLOCK + 3)]
    for item in new:
        live.add(item)
    assert [*map(as_tuple, live.values())] == [*map(as_tuple, saved + new)]
    for item in saved + dead:
        assert as_tuple(live.records.get(places[item.number])) == as_tuple(item)
    for item in saved:
        assert live.origin(item.name) == (item.born, item.consumer)
        assert live.place(item.number) == places[item.number]
    for item in dead:
        assert item.name not in live
    for item in saved[::2]:
        live.remove(item.name)
        live.release(places[item.number])
    assert [*map(as_tuple, live.values())] == [*map(as_tuple, saved[1::2] + new)]
