"""Progress of files: a share of their bytes, shown on a terminal only."""

from __future__ import annotations

import gzip
import io
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.progress import Progress

from rangecast.cli.shared import output
from rangecast.model.io import files
from rangecast.model.io.files import read_batches
from rangecast.model.io.read_progress import Reading

ROWS = 3000
TABLE = pa.table({"id": range(ROWS), "price": [float(n % 7) for n in range(ROWS)]})
TEXT = "".join(f"{n},{n % 7}\n" for n in range(ROWS))
LINES = "".join(f'{{"id": {n}, "price": {n % 7}}}\n' for n in range(ROWS))


def write(path):
    name = path.name
    if name.endswith(".parquet"):
        pq.write_table(TABLE, path)
    elif name == "file.arrow":
        with pa.ipc.new_file(path, TABLE.schema) as sink:
            sink.write_table(TABLE, max_chunksize=500)
    elif name == "stream.arrow":
        with pa.ipc.new_stream(path, TABLE.schema) as sink:
            sink.write_table(TABLE, max_chunksize=500)
    else:
        text = (LINES if ".jsonl" in name else "id,price\n" + TEXT).encode()
        path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)


@pytest.mark.parametrize(
    "name",
    [
        *("a.csv", "a.jsonl", "a.csv.gz", "a.jsonl.gz", "a.parquet", "file.arrow", "stream.arrow"),
    ],
)
def test_reading_goes_from_nothing_to_all_bytes(tmp_path, monkeypatch, name):
    monkeypatch.setattr(files, "BATCH_ROWS", 500)
    monkeypatch.setattr(files, "_CSV_BLOCKS", (1 << 12, 1 << 26))
    folder = tmp_path / "parts"
    folder.mkdir()
    for part in ("1", "2"):
        write(tmp_path / name)
        (tmp_path / name).rename(folder / f"{part}{name}")
    size = sum(one.stat().st_size for one in folder.iterdir())
    for _ in range(2):  # a second pass begins again
        reading, seen, rows = Reading(), [], 0
        for batch in read_batches(folder, reading=reading):
            rows += len(batch.rows)
            seen.append(reading.done)
        assert rows == 2 * ROWS
        assert reading.total == size
        assert seen == sorted(seen)
        assert 0 < seen[0] <= 0.6 * size
        assert 0.999 * size < seen[-1] <= size  # a stream of Arrow ends with a mark


def shown(cli, monkeypatch, tmp_path, *options, terminal=True, command="match"):
    text = io.StringIO()
    stream = SimpleNamespace(isatty=lambda: terminal)
    # The console itself: modules that a command imports bind it for good.
    wide = {"_force_terminal": True, "is_interactive": True, "_width": 120}
    for name, value in {"_file": text, **wide}.items():
        monkeypatch.setattr(output.console, name, value)
    monkeypatch.setattr(output, "sys", SimpleNamespace(stderr=stream, stdout=stream))
    update = Progress.update

    def at_once(self, *arguments, **fields):
        update(self, *arguments, **fields)
        self.refresh()

    monkeypatch.setattr(Progress, "update", at_once)
    (tmp_path / "events.csv").write_text("id,price\n" + TEXT)
    (tmp_path / "subscriptions.csv").write_text("id,filter\na,price < 2\n")
    (tmp_path / "space.toml").write_text('[[attribute]]\nname = "price"\ntype = "number"\n')
    (tmp_path / "objects.csv").write_text("id,position,value\na,1,5\n")
    (tmp_path / "interests.csv").write_text("id,position_lo,position_hi\ni,0,5\n")
    (tmp_path / "updates.csv").write_text("id,value\na,7\n")
    space = ("--space", "space.toml")
    given = {
        "notify": ("objects.csv", "updates.csv", "interests.csv"),
        "match": ("events.csv", "subscriptions.csv", *space),
        "rank": ("events.csv", "subscriptions.csv", *space),
        "cover": ("subscriptions.csv", *space),
        "merge": ("subscriptions.csv", *space, "--max-ranges", 8),
    }[command]
    cli(command, *given, "-o", "out.csv", *options)
    return text.getvalue()


@pytest.mark.parametrize("command", ["match", "rank", "cover", "merge", "notify"])
def test_a_terminal_shows_a_percentage(cli, monkeypatch, tmp_path, command):
    text = shown(cli, monkeypatch, tmp_path, command=command)
    assert "100%" in text
    if command == "match":
        assert "answering events" in text
        assert f"100%, {ROWS:,} rows" in text


@pytest.mark.parametrize("how", [{"terminal": False}, {"option": "--quiet"}, {"option": "--json"}])
def test_nothing_is_shown_elsewhere(cli, monkeypatch, tmp_path, how):
    options = [how["option"]] if "option" in how else []
    text = shown(cli, monkeypatch, tmp_path, *options, terminal=how.get("terminal", True))
    assert "%" not in text
    assert "answering" not in text
