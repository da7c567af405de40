import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given

from rangecast.kernels import ahead
from rangecast.match import starting
from rangecast.match.answerer import MatchAnswerer
from rangecast.match.scan import Scan
from rangecast.match.starting import Starting, begin
from rangecast.model.boxes import Boxes
from tests import strategies
from tests.conformance import as_sets, check_matcher


def some(n=300, d=3, seed=0):
    rng = np.random.default_rng(seed)
    lo = rng.random((n, d))
    return Boxes.of(lo, lo + 0.2), rng.random((50, d))


@pytest.fixture
def compiler(monkeypatch):
    """A process that compiles for as long as `running` says, and what was waited for."""

    class Compiler:
        running = True
        waited = 0

        def must_wait(self, verb, *_):
            assert verb == "match"
            return self.running

        def wait(self, _):
            self.waited += 1

    made = Compiler()
    monkeypatch.setattr(starting, "must_wait", made.must_wait)
    monkeypatch.setattr(starting, "wait", made.wait)
    return made


def test_the_scan_answers_until_kernels_are_compiled(compiler):
    boxes, points = some()
    index, choice = begin(boxes)
    assert (index.name, choice.name) == ("starting", "scan")
    expected = as_sets(Scan(boxes).match(points))
    assert as_sets(index.match(points)) == expected
    assert index._index is None
    compiler.running = False
    assert as_sets(index.match(points)) == expected
    assert index._index.name == "slabs"
    assert index.memory > index._index.memory


@given(strategies.boxes_and_points())
def test_it_matches_as_every_structure_does(case):
    check_matcher(Starting, *case)


def test_beyond_some_seconds_of_comparing_it_waits(compiler, monkeypatch):
    boxes, points = some()
    monkeypatch.setattr(starting, "_MOST", 60 * boxes.lo.size)
    index = Starting(boxes)
    index.match(points)
    assert (index._index, compiler.waited) == (None, 0)
    found = [set(index.match_one(point).tolist()) for point in points]
    assert (index._index.name, compiler.waited) == ("slabs", 1)
    assert found == as_sets(Scan(boxes).match(points))


def test_who_names_a_structure_or_has_a_large_set_gets_it(compiler, monkeypatch):
    boxes, _ = some()
    assert begin(boxes, "cells")[0].name == "cells"
    assert MatchAnswerer.of(boxes).index.name == "slabs"
    assert MatchAnswerer.of(boxes, at_once=True).index.name == "starting"
    monkeypatch.setattr(starting, "_LARGEST", 10)
    assert begin(boxes)[0].name == "slabs"


FRESH = """
import numpy as np
from rangecast import Engine
from rangecast.kernels import ahead
from rangecast.match.slabs.lanes import search_batch
from rangecast.model.attributes import Number
from rangecast.model.space import Space

engine = Engine(Space([Number("a"), Number("b")]))
engine.subscribe_many({"id": [f"s{i}" for i in range(1000)], "a_lo": [*range(1000)]})
found = engine.match_points(np.array([[1.0, 2.0], [500.0, 2.0]]))
running = ahead._started["match"]
running.kill()
print([len(one) for one in found], len(search_batch.overloads), running.wait())
"""


def test_from_an_empty_cache_nothing_is_compiled_before_the_first_answer(tmp_path):
    env = os.environ | {"XDG_CACHE_HOME": str(tmp_path), "RANGECAST_COMPILE": ""}
    command = [sys.executable, "-c", FRESH]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.stdout == "[2, 501] 0 -9\n", done.stderr


def test_no_process_is_started_where_kernels_could_not_be_kept_or_must_come_first(monkeypatch):
    class Kernel:
        overloads = ()
        _cache = None

    monkeypatch.setattr(ahead, "_started", {})
    assert not ahead.must_wait("match", Kernel())  # RANGECAST_COMPILE is first in all tests
    monkeypatch.delenv("RANGECAST_COMPILE")
    monkeypatch.setattr(ahead, "cache_folder", lambda: None)
    assert not ahead.must_wait("match", Kernel())
    assert ahead._started == {}
