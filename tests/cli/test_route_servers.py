"""`rangecast route servers`: the counts of servers in one process and in several, and of notify."""

import csv
import io
from pathlib import Path

import pytest

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("servers")
    objects = [(i, i * 7 % 50, i * 37 % 101) for i in range(40)]
    updates = [(i * 11 % 40, (i * 53 + row) % 101) for i in range(20) for row in range(3)]
    interests = [(i, i % 30, i % 30 + i * 5 % 40) for i in range(60)]
    for name, head, rows in [
        ("objects", ("id", "position", "value"), objects),
        ("updates", ("id", "value"), updates),
        ("interests", ("id", "position_lo", "position_hi"), interests),
    ]:
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([head, *rows])
    return [str(folder / f"{name}.csv") for name in ("objects", "updates", "interests")]


def rows(text):
    return [
        {name: int(value) for name, value in row.items()}
        for row in csv.DictReader(io.StringIO(text))
    ]


def test_processes_count_what_one_process_counts(cli, files):
    (single,) = rows(cli("route", "servers", *files, "-k", "3", "--servers", "2").stdout)
    sent = cli("notify", *files, "-k", "3").stdout.splitlines()[1:]
    assert single["messages"] == len(sent)
    assert single["updates"] == single["changes"] == 60
    options = ("-k", "3", "--servers", "2", "--batch-size", "10")
    (batches,) = rows(cli("route", "servers", *files, *options).stdout)
    assert batches["messages"] < single["messages"]
    assert batches["changes"] < batches["updates"] == 60
    assert rows(cli("route", "servers", *files, *options, "--processes").stdout) == [batches]


def test_a_space_is_divided_along_one_attribute(cli, files, tmp_path):
    attributes = [
        f'[[attribute]]\nname = "{name}"\ntype = "number"\n' for name in ("position", "z")
    ]
    (tmp_path / "space.toml").write_text("".join(attributes))
    objects = list(csv.DictReader(io.StringIO(Path(files[0]).read_text())))
    with (tmp_path / "objects.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("id", "position", "z", "value"))
        for row in objects:
            writer.writerow((row["id"], row["position"], int(row["id"]) * 13 % 40, row["value"]))
    given = [str(tmp_path / "objects.csv"), *files[1:], "--space", str(tmp_path / "space.toml")]
    options = ("-k", "2", "--algorithm", "dense")
    sent = cli("notify", *given, *options).stdout.splitlines()[1:]
    for attribute in ("position", "z"):
        by = ("--servers", "3", "--zone-attribute", attribute)
        (single,) = rows(cli("route", "servers", *given, *options, *by).stdout)
        assert single["messages"] == len(sent)
        assert single["queries"] > 100
        assert single["hops"] == single["queries"]  # dense: to both ends, whoever asks
        (processes,) = rows(cli("route", "servers", *given, *options, *by, "--processes").stdout)
        assert processes == single
