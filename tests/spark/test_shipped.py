"""Objects on their way to workers: mapped, not copied; checked; named after their content."""

import os
import pickle
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from rangecast.errors import SnapshotError
from rangecast.match.choose import INDEXES
from rangecast.match.scan import Scan
from rangecast.spark import shipped
from rangecast.spark.shipped import ShippedObject
from tests.support import adversarial
from tests.support.conformance import as_sets


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("RANGECAST_CACHE", str(tmp_path))
    for opened in (shipped._open, shipped._paged_out):
        opened.clear()
    yield tmp_path
    for opened in (shipped._open, shipped._paged_out):
        opened.clear()


def arrays_in(thing):
    found = []
    pickle.dumps(thing, protocol=5, buffer_callback=lambda b: found.append(b.raw()))
    return [np.frombuffer(one, np.uint8) for one in found]


@pytest.mark.parametrize("index", INDEXES)
def test_every_structure_comes_back_mapped_and_answers_the_same(index, tmp_path):
    boxes, points = adversarial.cases()["sparse"]
    built = INDEXES[index](boxes)
    folder = shipped.save(tmp_path, built)
    assert shipped.save(tmp_path, built) == folder
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]
    back = ShippedObject(folder.name, str(folder), None, 1).open()
    assert as_sets(back.match(points)) == as_sets(Scan(boxes).match(points))
    mapped = arrays_in(back)
    assert mapped
    assert not any(array.flags.writeable for array in mapped)


class Brought:
    """A broadcast as a worker sees it."""

    def __init__(self, value):
        self.value = value


@pytest.fixture
def archive(tmp_path):
    """The archive that a worker on another host receives."""
    (tmp_path / "driver").mkdir()
    folder = shipped.save(tmp_path / "driver", np.arange(1000.0))
    return ShippedObject(folder.name, None, Brought(shipped.packed(folder)), 8000)


def test_an_archive_is_unpacked_once_and_again_if_it_was_removed(archive, own_cache):
    for _ in range(2):
        np.testing.assert_array_equal(archive.open(), np.arange(1000.0))
    place = own_cache / "snapshots" / archive.digest
    long_ago = time.time() - 2 * 3600
    os.utime(place, (long_ago, long_ago))
    other = ShippedObject("0" * 32, None, archive.archive, 8000)
    with pytest.raises(SnapshotError, match="no snapshot found"):
        other.open()  # not what is in the archive
    assert shipped._unpacked(archive.digest, archive.archive) == place  # there: it was used now
    (own_cache / "snapshots" / "another").mkdir()
    os.utime(own_cache / "snapshots" / "another", (long_ago, long_ago))
    shipped._unpacked(archive.digest, archive.archive)
    assert not (own_cache / "snapshots" / "another").exists()
    assert place.exists()


def test_an_archive_that_is_damaged_is_rejected(archive, own_cache):
    data = bytearray(archive.archive.value)
    place = data.index(np.float64(500.0).tobytes())
    data[place : place + 8] = np.float64(501.0).tobytes()
    archive.archive.value = bytes(data)
    with pytest.raises(SnapshotError, match="damaged"):
        archive.open()
    assert not (own_cache / "snapshots" / archive.digest).exists()


def test_a_worker_keeps_no_more_open_than_it_has_room_for(tmp_path):
    """The one that was used longest ago goes first; one alone may be larger than the room."""
    made = [shipped.save(tmp_path, np.full(1000, float(n))) for n in range(4)]
    objects = [ShippedObject(folder.name, str(folder), None, 8000) for folder in made]
    for place in (0, 1, 0, 2):
        objects[place].open(room=17_000)
    assert list(shipped._open) == [objects[0].digest, objects[2].digest]
    np.testing.assert_array_equal(objects[3].open(room=10), np.full(1000, 3.0))
    assert list(shipped._open) == [objects[3].digest]


def resident_pages():
    return int(Path("/proc/self/statm").read_text().split()[1])


def test_an_object_without_room_gives_up_its_pages_and_stays_mapped(tmp_path, monkeypatch):
    size = 64 << 20
    made = [shipped.save(tmp_path, np.full(size // 8, float(n))) for n in range(3)]
    objects = [ShippedObject(folder.name, str(folder), None, size) for folder in made]
    first = objects[0].open(room=size)
    assert first.sum() == 0
    before = resident_pages()
    assert objects[1].open(room=size)[-1] == 1
    page = os.sysconf("SC_PAGE_SIZE")
    assert (before - resident_pages()) * page > 0.9 * size
    assert first.max() == 0  # a task may go on using it
    assert list(shipped._paged_out) == [objects[0].digest]
    with monkeypatch.context() as context:
        context.setattr(shipped, "load_arrays", None)  # no file is opened
        assert objects[0].open(room=size) is first
    shutil.rmtree(made[1])
    objects[2].open(room=size)
    assert objects[1].digest not in shipped._paged_out


@pytest.mark.process
def test_a_driver_leaves_nothing_behind_even_if_it_is_killed(own_cache):
    code = (
        "from rangecast.spark import shipped; import numpy as np, os, signal, sys;"
        "shipped.save(shipped.drivers_folder(), np.arange(9)); print('made', flush=True);"
        "os.kill(os.getpid(), signal.SIGKILL) if sys.argv[1] == 'killed' else None"
    )
    for how, left in (("killed", 1), ("killed", 1), ("ended", 0)):
        command = [sys.executable, "-W", "always::ResourceWarning", "-c", code, how]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.stdout == "made\n", done.stderr
        assert "unclosed" not in done.stderr
        assert len(list((own_cache / "drivers").iterdir())) == left


def test_what_is_released_goes_once_nobody_needs_it(tmp_path):
    folder = shipped.save(tmp_path, np.arange(5))
    one = ShippedObject(folder.name, str(folder), None, 1)
    shipped._uses[str(folder)] += 2
    one.release()
    assert folder.exists()
    one.release()
    assert not folder.exists()
