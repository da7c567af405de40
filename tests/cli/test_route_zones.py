"""`rangecast route zones`: approaches compared over a network of brokers."""

from __future__ import annotations

import csv
import json

import pytest

from rangecast.model.io.writer import write_table
from rangecast.workloads import generate


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("network")
    made = generate("topk", seed=1, objects=200, interests=2_000, updates=150)
    paths = []
    for name in ("objects", "updates", "interests"):
        paths.append(str(folder / f"{name}.csv"))
        write_table(made.tables[name], paths[-1])
    return paths


SMALL = ("--underlay-nodes", "300", "--top", "5", "--seed", "1")


@pytest.mark.parametrize("zones", ["random", "load"])
def test_approaches_are_compared(cli, files, tmp_path, zones):
    table, picture = tmp_path / "costs.csv", tmp_path / "network.png"
    done = cli(
        *("route", "zones", *files, *SMALL, "--brokers", "20", "--zones", zones),
        *("-o", str(table), "--plot", str(picture), "--json"),
    )
    with table.open() as file:
        costs = {row.pop("approach"): row for row in csv.DictReader(file)}
    assert list(costs) == [
        *("Paint-Dense", "Paint-Sparse", "Unicast", "Unicast by zones"),
        *("Paint-Sparse(1)", "CN-Relax"),
    ]
    number = {name: {k: float(v) for k, v in row.items()} for name, row in costs.items()}
    sparse, dense, letters = (number[n] for n in ("Paint-Sparse", "Paint-Dense", "Unicast"))
    assert sparse["received"] == dense["received"] == letters["messages"]
    assert sparse["messages"] < dense["messages"]
    assert sparse["server_bytes"] == pytest.approx(24 * sparse["messages"])
    assert letters["server_bytes"] == pytest.approx(16 * letters["messages"])
    assert letters["overlay"] < number["Unicast by zones"]["overlay"]
    assert [number[n]["redundancy"] for n in ("Paint-Dense", "Unicast")] == [0, 0]
    assert 0 < number["Paint-Sparse(1)"]["redundancy"] < number["CN-Relax"]["redundancy"]
    assert number["CN-Relax"]["server_bytes"] == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    facts = json.loads(done.stdout)
    assert facts["brokers"] == 20
    assert facts["approaches"]["Unicast"]["messages"] == pytest.approx(letters["messages"])


def test_a_table_is_shown_where_the_result_goes_to_a_file(cli, files, tmp_path):
    table = tmp_path / "costs.csv"
    done = cli("route", "zones", *files, *SMALL, "--brokers", "3", "-o", str(table))
    assert "Paint-Sparse(1)" in done.stderr
    assert "150 updates for 2,000 interests at 3 brokers" in done.stderr


def test_what_cannot_be_measured_is_rejected(cli, files, tmp_path):
    moved = tmp_path / "moved.csv"
    moved.write_text("id,value,position\n3,0.5,0.25\n")
    done = cli("route", "zones", files[0], str(moved), files[2], *SMALL, code=2)
    assert "an update of 3 has a position" in done.stderr
    done = cli("route", "zones", *files, *SMALL, "--brokers", "400", code=2)
    assert "400 don't fit into 300 nodes" in done.stderr
    done = cli(
        "route", "zones", *files, "--underlay-nodes", "300", "--degree-exponent", "0.5", code=2
    )
    assert "a degree_exponent above 1" in done.stderr
