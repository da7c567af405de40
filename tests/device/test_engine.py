"""A live set on a device answers as one on the CPU, through edits, at every interface of it."""

import pickle
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from rangecast import Point, Text
from rangecast import liveset as liveset_module
from rangecast.engine import Engine
from rangecast.errors import UsageError
from rangecast.model.attributes.base import Number
from rangecast.model.space import Space

EVENTS = [{"x": x, "y": y} for x in (0, 1, 2.5, 7) for y in (0, 3, 7)] + [{"x": 1}, {}]


def plane():
    return Space([Number("x"), Number("y")])


def pair():
    return Engine(plane()), Engine(plane(), device="cuda")


def same(cpu, gpu, k=3):
    assert list(gpu.match_many(EVENTS)) == list(cpu.match_many(EVENTS))
    assert gpu.count_many(EVENTS).tolist() == cpu.count_many(EVENTS).tolist()
    assert list(gpu.rank_many(EVENTS, k)) == list(cpu.rank_many(EVENTS, k))


def test_a_history_of_edits(monkeypatch):
    monkeypatch.setattr(liveset_module, "RECENT", 3)
    rng = np.random.default_rng(1)
    engines = pair()
    names: list[str] = []
    for turn in range(24):
        lo, width = rng.integers(0, 8, 2), rng.integers(0, 5, 2)
        (a, b), (c, d) = zip(lo.tolist(), (lo + width).tolist(), strict=True)
        text = f"(x >= {a} and x <= {b}) or (y >= {c} and y <= {d})"
        kind = rng.integers(0, 4) if names else 0
        name = f"s{turn}" if kind == 0 else names[rng.integers(len(names))]
        for engine in engines:
            if kind == 0:
                engine.subscribe(name, text, score=float(turn % 3))
            elif kind == 1:
                engine.unsubscribe(name)
            elif kind == 2:
                engine.replace(name, text)
            else:
                engine.rescore(name, float(turn % 4))
        if kind == 0:
            names.append(name)
        elif kind == 1:
            names.remove(name)
        if turn % 8 == 7:
            for engine in engines:
                engine.wait_for_rebuild()
            same(*engines)
    assert engines[1].rebuild_count or engines[1]._view.dead
    assert not engines[1]._view.parts
    event = EVENTS[4]
    assert engines[1].match(event) == engines[0].match(event)
    assert engines[1].match_each([event, {"z": 1}])[0] == engines[0].match(event)
    assert engines[1].rank(event, 2) == engines[0].rank(event, 2)
    same(engines[0], pickle.loads(pickle.dumps(engines[1])))
    assert "device: cuda" in engines[1].explain()
    assert engines[1].memory > engines[0].memory


def test_dead_rows_go_with_a_rebuild(monkeypatch):
    monkeypatch.setattr(liveset_module, "RECENT", 20)
    cpu, gpu = pair()
    rows = [{"id": i, "x_lo": i % 7, "x_hi": i % 7 + 1} for i in range(300)]
    for engine in (cpu, gpu):
        engine.subscribe_many(rows)
    same(cpu, gpu)
    for engine in (cpu, gpu):
        engine.unsubscribe_many(range(0, 300, 2))
        engine.wait_for_rebuild()
    assert gpu.rebuild_count == 1
    same(cpu, gpu)


def test_an_older_view_is_answered_as_it_was():
    cpu, gpu = pair()
    for engine in (cpu, gpu):
        engine.subscribe("a", "x < 5")
    view = gpu._view
    gpu.unsubscribe("a")
    gpu.subscribe("b", "x < 5")
    point = np.array([[1.0, 1.0]])
    assert gpu.match({"x": 1}) == ["b"]
    assert gpu._match(view, point, 1)[0].rows.tolist() == [0]
    assert gpu.match({"x": 1}) == ["b"]


def test_shapes_are_verified_on_the_cpu():
    space = Space([Point("at"), Number("v")])
    cpu, gpu = Engine(space), Engine(space, device="cuda")
    for engine in (cpu, gpu):
        engine.subscribe("circle", "within(at, circle(2, 48, 3)) and v < 5")
        engine.subscribe("box", "v > 3")
    events = [{"x": 2.1, "y": 48.1, "v": 1}, {"x": 4.9, "y": 50.9, "v": 4}, {"v": 9}]
    assert list(gpu.match_many(events)) == list(cpu.match_many(events))
    assert gpu.match(events[0]) == cpu.match(events[0]) == ["circle"]
    with pytest.raises(UsageError, match="a device only ranks by score"):
        gpu.rank(events[0], 2)


def test_texts_are_verified_on_the_cpu():
    space = Space([Text("title"), Number("v")])
    cpu, gpu = Engine(space), Engine(space, device="cuda")
    wanted = {
        "words": "words(title) has all ('red', 'bike')",
        "prefix": "title like 'Red%' and v < 3",
        "not": "not title like '%bike%'",
        "number": "v > 2",
    }
    for engine in (cpu, gpu):
        for name, filter_ in wanted.items():
            engine.subscribe(name, filter_)
    titles = ["red bike", "Red car", "a bike", "", "Red bike red"]
    events = [{"title": title, "v": v} for title in titles for v in range(5)] + [{"v": 1}]
    expected = list(cpu.match_many(events))
    assert list(gpu.match_many(events)) == expected
    assert [gpu.match(event) for event in events] == expected
    assert gpu.match_each(events) == expected
    assert gpu.count_many(events).tolist() == [len(ids) for ids in expected]
    assert {name for ids in expected for name in ids} == set(wanted)


def test_what_a_device_does_not_do():
    gpu = Engine(plane(), device="cuda")
    gpu.subscribe("a", "x < 5")
    with pytest.raises(UsageError, match="a device only ranks by score"):
        gpu.rank({"x": 1}, relaxed=True)
    with pytest.raises(UsageError, match="a device only ranks by score"):
        gpu.rank({"x": (1, 2)}, span="overlap")
    factors = gpu.rank({"x": 1}, 1, score_factors=lambda _, ids: [0.5] * len(ids))
    assert factors == [("a", 0.0)]
    with pytest.raises(UsageError, match="no device 'cude'"):
        Engine(plane(), device="cude")
    with pytest.raises(UsageError, match="has its own index"):
        Engine(plane(), device="cuda", index="slabs")


def test_points_with_nan_are_rejected():
    gpu = Engine(plane(), device="cuda")
    gpu.subscribe("a", "x < 5")
    points = np.array([[1.0, 2.0], [1.0, np.nan]])
    for ask in (gpu.match_points, gpu.rank_points):
        assert len(ask(points[:1])) == 1
        with pytest.raises(UsageError, match="NaN"):
            ask(points)


def test_what_is_missing_is_said(monkeypatch):
    """Without CuPy, and with one that finds no GPU."""
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(UsageError, match=r"requires CuPy(.|\n)*pip install 'rangecast\[gpu\]'"):
        Engine(plane(), device="cuda")
    runtime = SimpleNamespace(getDeviceCount=lambda: 0, CUDARuntimeError=OSError)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)))
    with pytest.raises(UsageError, match=r"found no GPU(.|\n)*hint:"):
        Engine(plane(), device="cuda")
