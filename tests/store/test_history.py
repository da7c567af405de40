"""Histories: what a set that is replayed up to a time would have answered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rangecast import Engine, Number, Space
from rangecast.errors import DuplicateIdError, UnknownIdError, UsageError
from rangecast.model.encoding.subscriptions import read_subscriptions
from rangecast.store import History, Versions

SPACE = Space([Number("a"), Number("b")])


def drawn(rng: Any) -> str:
    low, width = rng.integers(0, 20), rng.integers(0, 8)
    text = f"a between {low} and {low + width}"
    other = rng.integers(0, 20)
    return f"{text} {rng.choice(['and', 'or'])} b > {other}" if rng.random() < 0.6 else text


def replayed(edits: list[tuple[Any, ...]], until: float) -> Engine:
    """The set as it was at a time: a replacement arrives anew."""
    engine = Engine(SPACE)
    for at, word, name, text, score in edits:
        if at > until:
            break
        if word != "subscribe":
            engine.unsubscribe(name)
        if word != "unsubscribe":
            engine.subscribe(name, text, score=score)
    return engine


@pytest.mark.parametrize("seed", range(3))
def test_answers_are_those_of_a_set_replayed_up_to_then(seed: int) -> None:
    rng = np.random.default_rng(seed)
    history, there, at = History(SPACE), set[int](), 0.0
    edits: list[tuple[Any, ...]] = []
    for number in range(80):
        at += float(rng.choice([0.0, 0.5, 1e9]))
        name = int(rng.choice([*there])) if there and rng.random() < 0.5 else number
        score = float(rng.integers(0, 4))
        if name not in there:
            edits.append((at, "subscribe", name, drawn(rng), score))
            history.subscribe(name, edits[-1][3], at=at, score=score)
            there.add(name)
        elif rng.random() < 0.5:
            edits.append((at, "unsubscribe", name, "", 0.0))
            history.unsubscribe(name, at=at)
            there.discard(name)
        else:
            edits.append((at, "replace", name, drawn(rng), score))
            history.replace(name, edits[-1][3], at=at, score=score)
    assert len(history) == len(there)
    times = sorted({edit[0] for edit in edits})
    for time in [times[0] - 1, *times[::4], times[-1] + 5]:
        engine = replayed(edits, time)
        for _ in range(4):
            event = {"a": float(rng.integers(0, 28)), "b": float(rng.integers(0, 28))}
            assert history.match(event, as_of=time) == engine.match(event)
            assert history.rank(event, 3, as_of=time) == engine.rank(event, 3)
            assert history.count(event, as_of=time) == engine.count(event)


def test_what_ended_can_be_forgotten() -> None:
    history = History(SPACE)
    history.subscribe("x", "a < 5", at=1)
    history.replace("x", "a < 3", at=4)
    history.unsubscribe("x", at=9)
    history.subscribe("y", "a < 5", at=9)
    history.unsubscribe("y", at=9)  # it never held
    assert history.versions == 2
    assert history.match({"a": 4}, as_of=3.9) == ["x"]
    assert history.match({"a": 4}, as_of=4) == []
    assert history.match({"a": 2}, as_of=9) == []
    assert history.forget(5) == 1
    assert history.match({"a": 4}, as_of=3.9) == []
    assert history.match({"a": 2}, as_of=8) == ["x"]


def test_versions_of_a_store_have_a_history(tmp_path: Path) -> None:
    versions = Versions(tmp_path / "versions")
    numbers = []
    for rows in ("1,a < 5\n2,b > 3\n", "1,a < 9\n2,b > 3\n", "2,b > 3\n3,a > 1\n"):
        path = tmp_path / "subscriptions.csv"
        path.write_text("id,filter\n" + rows)
        versions.commit(read_subscriptions(path, SPACE), SPACE)
        numbers.append(versions.latest())
    history = History.of(versions)
    event = {"a": 7, "b": 4}
    assert [history.match(event, as_of=number) for number in numbers] == [[2], [2, 1], [2, 3]]
    assert history.versions == 4, "what didn't change is one version"
    with pytest.raises(UsageError, match="no history without versions"):
        History.of(Versions(tmp_path / "none"))


def test_edits_that_cannot_be_are_rejected() -> None:
    history = History(SPACE)
    history.subscribe("x", "a < 5", at=3)
    with pytest.raises(DuplicateIdError):
        history.subscribe("x", "a < 5", at=3)
    with pytest.raises(UnknownIdError):
        history.unsubscribe("y", at=3)
    with pytest.raises(UsageError, match="in order of time"):
        history.unsubscribe("x", at=2)
    with pytest.raises(UsageError, match="valid_at"):
        History(Space([Number("valid_at")]))
    assert history.match({"a": 1}, as_of=3) == ["x"]
