"""Batches in a folder: whole or not at all, once, also when the writer is killed at any step."""

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from rangecast.errors import FileError, UsageError
from rangecast.store.commits import CommittedFolder, commits, read_committed
from tests.support.killed import killed_at_each_operation


def rows(batch):
    return [batch * 10 + i for i in range(3)]


def write(folder, batch, stream="s"):
    """Write a batch as a stream does; in two files, so that one of them can be missing."""
    with CommittedFolder(folder / "matches", stream) as sink:
        if not sink.is_committed(batch):
            staged = sink.stage(batch)
            staged.mkdir()
            for part in (0, 1):
                table = pa.table({"event": rows(batch)[part::2]})
                pq.write_table(table, staged / f"part-{part}.parquet")
            sink.commit(batch, staged, {"version": batch + 1})


def seen(folder):
    """Return the rows that readers find that know nothing of commits."""
    arrow = ds.dataset(folder, format="parquet").to_table()
    found = sorted(arrow.column("event").to_pylist())
    every = f"{folder}/**/*.parquet"
    events = duckdb.sql(f"select event, batch from read_parquet('{every}') order by event")
    assert [row[0] for row in events.fetchall()] == found
    return found


def test_a_batch_is_seen_once_it_is_committed(tmp_path):
    with CommittedFolder(tmp_path / "matches", "s") as sink:
        with pytest.raises(FileError, match="no batch has been committed"):
            read_committed(tmp_path / "matches")
        write_to = sink.stage(0)
        write_to.mkdir()
        pq.write_table(pa.table({"event": rows(0)}), write_to / "a.parquet")
        assert not commits(tmp_path / "matches")
        sink.commit(0, write_to, {"version": 7})
    assert commits(tmp_path / "matches") == [{"stream": "s", "batch": 0, "version": 7}]
    assert read_committed(tmp_path / "matches").to_table().to_pylist() == [
        {"event": event, "batch": 0} for event in rows(0)
    ]


def test_a_committed_batch_is_never_replaced(tmp_path):
    write(tmp_path, 0)
    with CommittedFolder(tmp_path / "matches", "s") as sink:
        assert sink.is_committed(0)
        staged = sink.stage(0)
        staged.mkdir()
        with pytest.raises(OSError, match="not empty"):
            sink.commit(0, staged, {})
    assert seen(tmp_path / "matches") == rows(0)


def test_a_batch_without_rows_is_committed_too(tmp_path):
    write(tmp_path, 0)
    with CommittedFolder(tmp_path / "matches", "s") as sink:
        staged = sink.stage(1)
        staged.mkdir()
        sink.commit(1, staged, {})
    assert [mark["batch"] for mark in commits(tmp_path / "matches")] == [0, 1]
    assert seen(tmp_path / "matches") == rows(0)


@pytest.mark.process
def test_killed_anywhere_nothing_is_lost_and_nothing_is_there_twice(tmp_path):
    states = set()
    for folder in killed_at_each_operation(tmp_path, lambda f: write(f, 0), write_next):
        after = seen(folder / "matches")
        assert after in (rows(0), rows(0) + rows(1)), folder
        states.add(len(after))
        write_next(folder)
        write_next(folder)
        assert seen(folder / "matches") == rows(0) + rows(1)
        assert [mark["batch"] for mark in commits(folder / "matches")] == [0, 1]
        assert [p.name for p in (folder / ".matches.staging").iterdir()] == ["lock"]
    assert states == {3, 6}, "some kills must come before and some after the commit"


def write_next(folder):
    write(folder, 1)


def test_killed_while_the_folder_is_made(tmp_path):
    for folder in killed_at_each_operation(tmp_path, lambda _: None, write_first):
        write_first(folder)
        assert seen(folder / "matches") == rows(0)


def write_first(folder):
    write(folder, 0)


def test_what_a_crashed_attempt_still_writes_is_not_seen(tmp_path):
    write(tmp_path, 0)
    with CommittedFolder(tmp_path / "matches", "s") as sink:
        ours, zombie = sink.stage(1), sink.stage(1)
        for staged in (ours, zombie):
            staged.mkdir()
            pq.write_table(pa.table({"event": rows(1)}), staged / "a.parquet")
        sink.commit(1, ours, {})
        pq.write_table(pa.table({"event": [99]}), zombie / "b.parquet")
    assert seen(tmp_path / "matches") == rows(0) + rows(1)


def test_the_folder_of_another_stream_is_rejected(tmp_path):
    write(tmp_path, 0)
    with pytest.raises(UsageError, match="another stream, s; this one is t"):
        write(tmp_path, 0, stream="t")
    write(tmp_path, 1)  # and it is left as it was


def test_a_folder_in_which_nothing_was_committed_may_be_taken_over(tmp_path):
    with CommittedFolder(tmp_path / "matches", "s") as sink:
        assert sink.recorded("ids", "bigint") == "bigint"
    write(tmp_path, 0, stream="t")
    for given in ("string", "bigint"):  # once there is a batch, what is settled stays
        with CommittedFolder(tmp_path / "matches", "t") as sink:
            assert sink.recorded("ids", given) == "string"
    with pytest.raises(UsageError, match="a batch job fills a folder once"):
        write(tmp_path, 0, stream="batch job 7")


def test_a_folder_with_other_things_is_rejected(tmp_path):
    (tmp_path / "matches").mkdir()
    (tmp_path / "matches" / "old.parquet").touch()
    with pytest.raises(UsageError, match=r"'old.parquet', which no stream wrote"):
        write(tmp_path, 0)


def test_two_writers_at_once_are_rejected(tmp_path):
    with (
        CommittedFolder(tmp_path / "matches", "s"),
        pytest.raises(UsageError, match="another process is writing there"),
    ):
        write(tmp_path, 0)
    write(tmp_path, 0)


def test_a_folder_that_cant_be_made_is_an_error_of_ours(tmp_path):
    (tmp_path / "matches").write_text("a file")
    with pytest.raises(FileError, match="can't be written"):
        write(tmp_path, 0)
