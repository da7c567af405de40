"""Objects on their way to workers: mapped, not copied; checked; named after their content."""

import pickle

import numpy as np
import pytest

from rangecast.errors import SnapshotError
from rangecast.match.choose import INDEXES
from rangecast.match.scan import Scan
from rangecast.spark import shipped
from tests import adversarial
from tests.conformance import as_sets


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("RANGECAST_CACHE", str(tmp_path))
    shipped._opened.cache_clear()
    yield tmp_path
    shipped._opened.cache_clear()


def arrays_in(thing):
    found = []
    pickle.dumps(thing, protocol=5, buffer_callback=lambda b: found.append(b.raw()))
    return [np.frombuffer(one, np.uint8) for one in found]


@pytest.mark.parametrize("index", INDEXES)
def test_every_structure_comes_back_mapped_and_answers_the_same(index):
    boxes, points = adversarial.cases()["sparse"]
    built = INDEXES[index](boxes)
    digest = shipped._save(built)
    assert shipped._save(built) == digest
    back = shipped.Shipped(digest, None).open()
    assert as_sets(back.match(points)) == as_sets(Scan(boxes).match(points))
    mapped = arrays_in(back)
    assert mapped
    assert not any(array.flags.writeable for array in mapped)


def test_an_archive_that_is_damaged_is_refused(own_cache, monkeypatch, tmp_path):
    digest = shipped._save(np.arange(1000.0))
    archive = shipped._packed(digest)
    data = bytearray(archive.read_bytes())
    place = data.index(np.float64(500.0).tobytes())
    data[place : place + 8] = np.float64(501.0).tobytes()
    archive.write_bytes(bytes(data))
    elsewhere = tmp_path / "elsewhere"
    monkeypatch.setenv("RANGECAST_CACHE", str(elsewhere))
    monkeypatch.setattr(shipped.SparkFiles, "get", lambda name: str(archive))
    with pytest.raises(SnapshotError, match="damaged"):
        shipped.Shipped(digest, archive.name).open()
    assert not (elsewhere / "snapshots" / digest).exists()


def test_what_was_unused_for_a_week_is_removed(own_cache):
    import os
    import time

    old, new = shipped._save(np.arange(3)), shipped._save(np.arange(4))
    long_ago = time.time() - 8 * 24 * 3600
    os.utime(own_cache / "snapshots" / old, (long_ago, long_ago))
    shipped._save(np.arange(5))
    left = {folder.name for folder in (own_cache / "snapshots").iterdir()}
    assert old not in left
    assert new in left
