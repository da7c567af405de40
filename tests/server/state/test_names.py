"""Names and ids without objects, compared with a dict and a list."""

from __future__ import annotations

import random
import threading
from array import array

import numpy as np
import pytest

from rangecast import Number, Space
from rangecast.server.state.entries import SpaceEntry
from rangecast.server.state.space_index import SpaceIndex, grouped
from rangecast.server.state.versions import ids as ids_module
from rangecast.server.state.versions.ids import IdTexts
from rangecast.server.state.versions.names import NameNumbers
from rangecast.server.state.versions.version import Version


class Bad(str):
    """A text whose hash is that of many others."""

    __slots__ = ()

    def __hash__(self) -> int:
        return len(self) % 3 - 1


def plain_names(dice: random.Random) -> str:
    return "".join(dice.choices("abü€\U0001f600\x00", k=dice.randrange(1, 9)))


@pytest.mark.parametrize("kind", [str, Bad])
@pytest.mark.parametrize("seed", range(3))
def test_numbers_are_those_of_a_dict(kind: type[str], seed: int) -> None:
    dice = random.Random(seed)
    names, plain, steps = NameNumbers(), dict[str, int](), 400 if kind is Bad else 6_000
    first = [kind(f"first {number}") for number in range(dice.randrange(1, 200))]
    names.bind_many(first, range(len(first)))
    plain.update((name, number) for number, name in enumerate(first))
    for number in range(len(first), steps):
        name = kind(plain_names(dice))
        assert names.get(name) == plain.get(name)
        if name not in plain:
            names.bind(name, number)
            plain[name] = number
        if plain and dice.random() < (0.45 if number < steps // 2 else 0.95):
            gone = dice.choice(list(plain))
            assert names.remove(gone) == plain.pop(gone)
            assert names.get(gone) is None
        assert len(names) == len(plain)
    assert {name: names.get(name) for name in plain} == plain
    for name in plain:
        names.remove(name)
    assert len(names) == 0
    with pytest.raises(KeyError):
        names.remove("a")
    assert names.get("\ud800") is None


def test_names_that_are_gone_give_back_their_bytes() -> None:
    names = NameNumbers()
    for number in range(40_000):
        names.bind(f"subscription {number}", number)
        if number >= 100:
            names.remove(f"subscription {number - 100}")
    assert len(names) == 100
    assert names.memory < 8 * 40_000 + 20_000  # a span for each number, and little else


def test_names_that_come_and_go_cost_the_same_however_many_there_were() -> None:
    def copied(count: int) -> int:
        """Return the numbers whose spans were copied."""
        names, spans, total = NameNumbers(), array("q"), 0
        for number in range(count):
            names.bind(f"session {number}", number)
            if number >= 10:
                names.remove(f"session {number - 10}")
            if names._names.spans is not spans:
                spans = names._names.spans
                total += len(spans)
        return total

    assert copied(80_000) < 8 * copied(20_000)


def test_a_name_takes_few_bytes() -> None:
    names = NameNumbers()
    for number in range(100_000):
        names.bind(f"s{number}", number)
    assert names.memory < 45 * 100_000
    assert all(names.get(f"s{number}") == number for number in range(100_000))


def test_readers_find_names_while_others_come_and_go() -> None:
    names = NameNumbers()
    kept = {f"kept {number}": number for number in range(50)}
    for name, number in kept.items():
        names.bind(name, number)
    wrong, is_over = list[str](), threading.Event()

    def read() -> None:
        while not is_over.is_set():
            wrong.extend(name for name, number in kept.items() if names.get(name) != number)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(50, 30_000):
        names.bind(f"other {number}", number)
        if number >= 500:
            names.remove(f"other {number - 400}")
    is_over.set()
    for reader in readers:
        reader.join()
    assert not wrong


def test_ids_are_those_of_a_list() -> None:
    dice = random.Random(4)
    ids, plain = IdTexts(), list[str | int]()
    for _ in range(200):
        numbers = [*{dice.randrange(len(plain) + 20) for _ in range(dice.randrange(1, 9))}]
        mine = [
            dice.choice(
                list[str | int](
                    [7, -(2**63), 2**63 - 1, "7", 'a "b" \\ ü', "", "\U0001f600", "x" * 300]
                )
            )
            for _ in numbers
        ]
        plain += [""] * (max(numbers) + 1 - len(plain))
        for number, id_ in zip(numbers, mine, strict=True):
            plain[number] = id_
        ids.put(numbers, mine)
        wanted = np.array([dice.randrange(len(plain)) for _ in range(dice.randrange(9))], np.int64)
        assert ids.listed(wanted) == [plain[number] for number in wanted]
        assert ids[numbers[0]] == plain[numbers[0]]
    assert ids.listed(np.arange(len(plain))) == plain
    before = ids.memory
    for number, id_ in enumerate(plain):
        ids.put([number], [id_])
    assert ids.memory == before


def test_a_reader_never_finds_an_id_of_one_buffer_in_another() -> None:
    """A reader that holds the arrays goes on while the writer replaces the buffer."""
    ids = IdTexts()
    ids.put(range(100), [f"s{n}" for n in range(100)])
    before = ids._ids
    ids.put([5], ["n" * 10_000])
    assert ids._ids.texts is not before.texts
    out, _ = ids_module._joined(before, np.array([5]))
    assert out.tobytes() == b'"s5",'
    assert ids[5] == "n" * 10_000


def test_the_text_of_an_id_that_changes_is_not_kept() -> None:
    """7 and "7" are one id for a server, so that a replacement may change the text."""
    ids, sizes = IdTexts(), []
    for turn in range(400):
        ids.put(range(1_000), [n if turn % 2 else str(n) for n in range(1_000)])
        assert ids[999] == (999 if turn % 2 else "999")
        sizes.append(ids.memory)
    assert max(sizes) <= 4 * sizes[0]


def test_the_texts_of_removed_ids_are_not_kept() -> None:
    ids, sizes = IdTexts(), []
    ids.put(range(100), [f"stays-{n}" for n in range(100)])
    for first in range(100, 100_000, 100):
        numbers = range(first, first + 100)
        ids.put(numbers, [f"session-{number}" for number in numbers])
        ids.remove(numbers)
        sizes.append(len(ids._ids.texts))
    assert max(sizes) <= 20_000
    assert len(ids._removed) <= 1_000
    assert ids.listed(np.arange(100)) == [f"stays-{n}" for n in range(100)]


def test_ids_that_are_removed_stay_while_a_thread_reads() -> None:
    ids = IdTexts()
    numbers = range(2_000)
    texts = [f"session-{number}" for number in numbers]
    ids.put(numbers, texts)
    with ids.reading():
        for number in numbers:
            ids.remove([number])
        ids._compact()
        assert ids.listed(np.arange(2_000)) == texts
        with ids.reading():  # it began when they were gone
            pass
    ids.put([2_000], ["x" * 100_000])  # as much again is dead: the buffer is compacted
    ids.put([2_000], ["last"])
    assert len(ids._ids.texts) < 1_000
    assert ids.listed(np.array([3, 2_000])) == ["", "last"]


def test_ids_that_come_and_go_cost_the_same_however_many_there_were() -> None:
    def copied(count: int) -> int:
        """Return the numbers whose spans were copied."""
        ids, spans, total = IdTexts(), np.zeros(0, np.int64), 0
        for number in range(count):
            ids.put([number], [f"session-{number}"])
            if number >= 10:
                ids.remove([number - 10])
            if ids._ids.spans is not spans:
                spans = ids._ids.spans
                total += len(spans)
        return total

    assert copied(80_000) < 8 * copied(20_000)


def test_an_id_that_leaves_twice_stays_for_those_who_read_the_second() -> None:
    ids = IdTexts()
    ids.put([0], ["first"])
    ids.remove([0])
    ids.put([0], ["second"])
    with ids.reading():
        ids.remove([0])
        ids._compact()
        assert ids[0] == "second"
    ids._compact()
    assert ids[0] == ""


def test_ids_are_those_of_a_dict_while_numbers_leave_and_return() -> None:
    dice = random.Random(5)
    ids, plain = IdTexts(), dict[int, str | int]()
    for turn in range(3_000):
        numbers = [*{dice.randrange(300) for _ in range(dice.randrange(1, 9))}]
        if turn % 2:
            leaving = [number for number in numbers if number in plain]
            if leaving:
                ids.remove(leaving)
            for number in leaving:
                del plain[number]
        else:
            mine = [dice.choice([turn, str(turn), "same", "y" * 40]) for _ in numbers]
            ids.put(numbers, mine)
            plain.update(zip(numbers, mine, strict=True))
        wanted = dice.sample([*plain], min(len(plain), 5))
        assert ids.listed(np.array(wanted, np.int64)) == [plain[number] for number in wanted]


def test_ids_of_events_are_their_json() -> None:
    ids = IdTexts()
    ids.put(range(4), ["a", 5, 'q"', ""])
    events, numbers = np.array([-1, 2, 2, 2, 7]), np.array([3, 0, 1, 2, 1])
    assert [*grouped(events, numbers, ids)] == [(-1, b'""'), (2, b'"a",5,"q\\""'), (7, b"5")]
    assert [*grouped(events, numbers, ids, 2)] == [(-1, b'""'), (2, b'"a",5'), (7, b"5")]
    assert [*grouped(events[:0], numbers[:0], ids)] == []


def test_scores_are_kept_once_one_is_given() -> None:
    index = SpaceIndex(SpaceEntry("t", "points", 0, Space([Number("a")]), 1))
    plain = dict[int, float]()
    for number in range(3_000):
        score = number / 3 if number in (1_500, 2_000) or number > 2_500 else 0.0
        index.note([Version(number, f"s{number}", "a > 1", -1, number, score=score)])
        plain[number] = score
        if number % 400 == 0:
            numbers = np.array([*plain])[::-1]
            assert index.scores(numbers).tolist() == [plain[one] for one in numbers.tolist()]
    index.note([Version(1_500, "s1500", "a > 1", -1, 9_000)])
    assert index.scores(np.array([1_500, 2_000, 2_999])).tolist() == [0, 2_000 / 3, 2_999 / 3]
