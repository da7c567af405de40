"""A space of a server whose subscriptions a stream follows."""

import re
import subprocess
import sys
from threading import Event, Thread, current_thread

import pytest

from rangecast.client import Client
from rangecast.errors import FileError, UsageError
from rangecast.model.space import Space
from rangecast.spark.stream.edits import server as edits_of_server
from rangecast.spark.stream.edits.server import ServerEdits
from rangecast.store.edits import Edits
from rangecast.store.versions import Versions
from tests.spark.stream.test_pipeline_graph import CHECKPOINT, add, load, rows, sink, step

pytestmark = pytest.mark.process
SPACE = (
    '[[attribute]]\nname = "price"\ntype = "number"\n[[attribute]]\nname = "name"\n'
    'type = "string"\n'
)


@pytest.fixture
def server(tmp_path):
    (tmp_path / "market.toml").write_text(SPACE)
    command = [sys.executable, "-m", "rangecast", "serve", "--space", "market.toml"]
    process = subprocess.Popen(
        [*command, "--data", "data", "--port", "0"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    said = process.stdout.readline()
    found = re.search(r"http://127\.0\.0\.1:\d+", said)
    assert found, said
    yield found[0]
    process.kill()
    process.wait()
    process.stdout.close()


class Followed:
    """A server, the folder of its edits, and the versions that these make."""

    def __init__(self, url, folder):
        self.folder = folder / "edits"
        self.edits = ServerEdits(url, "market", self.folder)
        self.versions = Versions(folder / "versions")
        self.store = Edits(self.folder, self.versions, Space.from_toml(SPACE))

    def set(self):
        """Follow the server; return the newest version: upper bounds of the price and scores."""
        self.edits()
        self.store.apply()
        boxes, _ = self.versions.load(self.versions.latest())
        assert self.versions.rejected(self.versions.latest()) == []
        return {
            one: (high, score)
            for one, high, score in zip(
                boxes.ids.to_pylist(), boxes.hi[:, 0].tolist(), boxes.scores.tolist(), strict=True
            )
        }


def test_a_set_is_what_the_space_is_after_each_change(server, tmp_path, monkeypatch):
    followed = Followed(server, tmp_path)
    assert followed.set() == {}
    with Client(server, space="market") as client:
        client.upsert_many([{"id": f"s{i}", "filter": f"price <= {i}"} for i in range(2500)])
        expected = {f"s{i}": (float(i), 0.0) for i in range(2500)}  # of several pages
        assert followed.set() == expected
        files = len(list(followed.folder.iterdir()))
        client.publish([{"price": 1, "name": "bob"}])
        assert followed.set() == expected
        assert len(list(followed.folder.iterdir())) == files  # an event is no edit
        client.upsert("s7", "price <= 70", score=2.5)
        client.unsubscribe("s8")
        client.upsert("new", "price <= 1")
        del expected["s8"]
        expected |= {"s7": (70.0, 2.5), "new": (1.0, 0.0)}
        assert followed.set() == expected
        # a crash before the positions are kept: the same edits come again, and change nothing
        positions = (followed.folder / edits_of_server._POSITIONS).read_bytes()
        client.unsubscribe("s9")
        del expected["s9"]
        assert followed.set() == expected
        (followed.folder / edits_of_server._POSITIONS).write_bytes(positions)
        assert followed.set() == expected
        client.upsert("heavy", "price <= 1", weights={"price": 3.0})
        with pytest.raises(UsageError, match="subscription 'heavy' has weights"):
            followed.set()
    with pytest.raises(FileError, match=r"/v1/spaces/nothing/subscriptions: 404 "):
        ServerEdits(server, "nothing", tmp_path / "none")()
    with pytest.raises(FileError, match="can't be read: "):
        ServerEdits("http://127.0.0.1:1", "market", tmp_path / "none")()


def test_streams_that_follow_a_server_at_once_take_turns(server, tmp_path, monkeypatch):
    """Else both would write a file of the same name, and the edits of one could be lost."""
    followed = Followed(server, tmp_path)
    assert followed.set() == {}
    listed, atomic_file = ServerEdits._listed, edits_of_server.atomic_file
    writes, written = Event(), Event()

    def write(path):
        if current_thread() is other:
            writes.set()
            written.wait(10)
        return atomic_file(path)

    def overtaken(edits):
        rows = [*listed(edits)]
        if current_thread() is not other:
            client.upsert("b", "price <= 2")
            other.start()
            writes.wait(1)  # in vain: it waits for this call
        return iter(rows)

    other = Thread(target=followed.edits)
    with Client(server, space="market") as client:
        client.upsert("a", "price <= 1")
        with monkeypatch.context() as patch:
            patch.setattr(ServerEdits, "_listed", overtaken)
            patch.setattr(edits_of_server, "atomic_file", write)
            followed.edits()
            followed.store.apply()
            written.set()
            other.join()
        assert followed.set() == {"a": (1.0, 0.0), "b": (2.0, 0.0)}


def test_each_batch_is_answered_with_all_edits_that_the_server_had_acknowledged(
    spark, server, tmp_path
):
    (tmp_path / "space.toml").write_text(SPACE)
    text = (
        'mode = "stream"\nspace = "space.toml"\n[[source]]\ntype = "files"\nformat = "csv"\n'
        'path = "events"\noptions.maxFilesPerTrigger = 1\n[[subscriptions]]\n'
        f'server = "{server}"\nserver_space = "market"\n'
    )
    text += step("match") + sink("out") + CHECKPOINT
    with Client(server, space="market") as client:
        client.upsert("low", "price < 20")
        client.upsert("bob", "name = 'bob'")
        add(tmp_path, "0.csv", [("a", 10, "bob")])
        add(tmp_path, "1.csv", [("b", 10, "bob"), ("c", 10, "ann")])

        def change(done):
            if done.batch == 0:
                client.unsubscribe("low")
                client.upsert("ann", "name = 'ann'")

        load(tmp_path, text).run(spark, change)
        first = [(0, "a", "bob"), (0, "a", "low")]
        second = [(1, "b", "bob"), (1, "c", "ann")]
        assert rows(tmp_path, "out", "batch", "event", "subscription") == first + second
        client.unsubscribe("bob")  # a backlog on both sides
        client.upsert("ten", "price = 10")
        add(tmp_path, "2.csv", [("d", 10, "bob")])
        load(tmp_path, text).run(spark)
        found = rows(tmp_path, "out", "batch", "event", "subscription")
        assert found == [*first, *second, (2, "d", "ten")]
