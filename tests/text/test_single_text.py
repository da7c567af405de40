"""Texts of single events: their records are those that a batch has."""

from __future__ import annotations

import ctypes
import random
import threading

import numpy as np
import pytest

from rangecast import Engine, Number, Space, Text, UsageError
from rangecast.errors import InvalidValueError
from rangecast.model.text.forms import ADDRESS, FOLDED, FORMS, RAW, WORDS, _records, form_of
from rangecast.model.text.programs import RECORD
from rangecast.model.text.single_text import STRIDE, TextReader


def record_at(address: int, form: int) -> tuple[bytes | None, list[int]]:
    """Return the bytes and the signature of one form of a text."""
    numbers = np.ctypeslib.as_array((ctypes.c_int64 * (RECORD * FORMS)).from_address(address))
    start, size, *signature = numbers[RECORD * form : RECORD * (form + 1)].tolist()
    return (ctypes.string_at(start, size) if start else None), signature


@pytest.mark.parametrize("letters", ["aB Z-_9z", "".join(map(chr, range(128))), "aÉßİ 1.:"])
def test_records_are_those_of_a_batch(letters):
    r = random.Random(1)
    forms = [RAW, FOLDED, WORDS, ADDRESS] if "." in letters else [RAW, FOLDED, WORDS]
    reader = TextReader({2: set(forms), 5: {RAW, WORDS}}, [2, 5, 7])
    for size in range(60):
        text, other = ("".join(r.choices(letters, k=size)) for _ in range(2))
        text = text if size % 7 or "." not in letters else "10.0.0.1"
        records = reader.records
        assert reader.read((text, other, None))
        expected, alive = _records([text, text], set(forms))
        for form in forms:
            found, signature = record_at(records, form)
            assert found == form_of(text, form)
            if found is not None:
                own = RECORD * form + 2
                assert signature == expected[0, own : own + len(signature)].tolist()
        assert record_at(records + STRIDE, WORDS)[0] == form_of(other, WORDS)
        del alive


def test_texts_without_room_are_matched_all_the_same():
    engine = Engine(Space([Text("title"), Number("price")]))
    engine.subscribe("word", "words(title) has 'needle'")
    engine.subscribe("raw", "title contains 'needle'")
    long = {"title": "Hay " * 30_000 + "needle", "price": 1}
    assert engine.match(long) == ["word", "raw"]
    assert engine.count(long) == 2
    assert engine.match({"title": "ä" * 70_000 + " needle"}) == ["word", "raw"]


def test_events_that_are_wrong_are_rejected_as_before():
    engine = Engine(Space([Text("title"), Number("price")]))
    engine.subscribe("raw", "title contains 'a'")
    assert engine.match({"title": None, "price": 1}) == []
    assert engine.match({}) == []
    with pytest.raises(InvalidValueError, match="surrogate"):
        engine.match({"title": "a\ud800"})
    with pytest.raises(InvalidValueError, match="title"):
        engine.match({"title": 5})
    with pytest.raises(UsageError, match="titel"):
        engine.match({"titel": "a"})
    assert engine.match({"titel": "a", "title": "a"}, ignore_unknown=True) == ["raw"]
    with pytest.raises(UsageError, match="nan"):
        engine.match({"title": "a"}, nan="mising")


def test_threads_read_their_own_texts():
    engine = Engine(Space([Text("title"), Text("body")]))
    for n in range(40):
        engine.subscribe(n, f"words(title) has 'w{n}' and body contains 'b{n}'")
    wrong: list[int] = []

    def match(n: int) -> None:
        for _ in range(200):
            if engine.match({"title": f"a W{n}!", "body": f"xb{n}"}) != [n]:
                wrong.append(n)

    threads = [threading.Thread(target=match, args=(10 + n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
