"""`rangecast notify --changes`: whose list changed, and how, against lists that are recomputed."""

import csv
import json

import pytest

from rangecast import Space
from rangecast.notify import Board
from tests.cli.test_notify_cli import FLATS, INTERESTS, OBJECTS, RENTS, SPACE, UPDATES, WISHES

HEAD = "seq,interest,change,object,rank,rank_before,value"
PLANE = """
[[attribute]]
name = "x"
type = "number"
[[attribute]]
name = "m2"
type = "number"
"""
CASES = {
    "line": (None, OBJECTS, UPDATES, INTERESTS),
    "space": (SPACE, FLATS, RENTS, WISHES),
    "upper": (
        PLANE,
        "id,x,m2,value\na,1,40,5\nb,2,50,3\nc,3,60,4\n",
        "id,value,x,m2\nb,9,,\nd,1,2,45\na,2,,70\nc,,,\nd,6,,\n",
        "id,filter,k\n<p>,x > 0 and m2 < 55,\nq,x < 3,1\n",
    ),
    "shapes": (
        (
            '[[attribute]]\nname = "place"\ntype = "point"\n'
            '[[attribute]]\nname = "sums"\ntype = "arithmetic"\n'
        ),
        "id,x,y,value\na,1,4,5\nb,2,5,3\nc,3,6,4\n",
        "id,value,x,y\nb,9,,\nd,1,2,4.5\na,2,,7\nc,,,\nd,6,,\ne,1,9,9\ne,1,2,5\n",
        (
            'id,filter,k\n<p>,0.3*x + 0.7*y >= 4,\nq,"within(place, circle(2, 5, 1.2))",1\n'
            "r,\"within(place, 'POLYGON ((0 0, 9 0, 0 9, 0 0))') or x > 8\",\n"
        ),
    ),
}
NAMES = ("objects.csv", "updates.csv", "interests.csv")


def given(text):
    found = list(csv.DictReader(text.splitlines()))
    return [{name: _value(value) for name, value in row.items()} for row in found]


def _value(text):
    try:
        return float(text) if text else None
    except ValueError:
        return text


def shown(board):
    lists = {one: [(e.object, e.value) for e in board[one].best] for one in board}
    return {
        one: {thing: (rank, y) for rank, (thing, y) in enumerate(best, 1)}
        for one, best in lists.items()
    }


def expected(before, after, about, seq):
    """Compare all lists, also those that no message reaches."""
    for one, old in before.items():
        new = after[one]
        for thing in {*old, *new}:
            (rank_before, _), (rank, y) = (part.get(thing, (None, None)) for part in (old, new))
            kind = "moved" if rank != rank_before else "changed"
            kind = "entered" if rank_before is None else "left" if rank is None else kind
            passive = kind in ("moved", "changed") and thing not in about
            if old.get(thing) != new.get(thing) and not passive:
                yield seq, one, kind, thing, rank, rank_before, y


@pytest.mark.parametrize("options", [(), ("--algorithm", "dense"), ("--descending",)], ids=str)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("batch", [1, 4])
def test_changes_are_the_difference_of_the_lists(cli, tmp_path, case, options, batch):
    toml, *texts = CASES[case]
    for name, text in zip(NAMES, texts, strict=True):
        (tmp_path / name).write_text(text)
    how = {"descending": "--descending" in options}
    more = []
    if toml is not None:
        (tmp_path / "space.toml").write_text(toml)
        how["space"] = Space.load(tmp_path / "space.toml")
        more = ["--space", "space.toml"]
    if case == "upper":
        how["upper_bound_attribute"] = "m2"
        more += ["--upper-bound-attribute", "m2"]
    if batch > 1:
        if "--algorithm" in options:
            return
        more += ["--algorithm", "batch", "--batch-size", batch]
    command = ("notify", *NAMES, "-k", 2, *options, *more, "--verify", "-o", "messages.csv")
    done = cli(*command, "--changes", "-", "--json")
    assert json.loads(done.stderr)["mismatches"] == 0
    header, *rows = done.stdout.replace('"', "").splitlines()
    assert header == HEAD
    board = Board(2, objects=tmp_path / NAMES[0], interests=tmp_path / NAMES[2], **how)
    updates, wanted = given(texts[1]), []
    for number, first in enumerate(range(0, len(updates), batch)):
        some = updates[first : first + batch]
        before = shown(board)
        for row in some:
            board.update_many({name: [value] for name, value in row.items()})
        wanted += expected(before, shown(board), {row["id"] for row in some}, number)
    found = [tuple(map(_value, row.split(","))) for row in rows]
    assert sorted(found, key=str) == sorted(
        [(*row[:1], _value(str(row[1])), *row[2:]) for row in wanted], key=str
    )
    assert {"entered", "left"} <= {row[2] for row in found}


def test_the_summary_counts_changes(cli, tmp_path):
    for name, text in zip(NAMES, CASES["line"][1:], strict=True):
        (tmp_path / name).write_text(text)
    done = cli("notify", *NAMES, "-k", 2, "-o", "messages.csv", "--changes", "changes.parquet")
    assert " changes of lists" in done.stderr
    assert "is given for two outputs" in cli("notify", *NAMES, "--changes", "-", code=2).stderr
