"""Hints about unknown columns: the name that was meant first, to ignore it second."""

from types import SimpleNamespace

import pytest

from rangecast import Arithmetic, Engine, Number, Point, Space, Text
from rangecast.errors import RangecastError
from rangecast.notify import Board
from rangecast.spark.columns import reject_unknown

SPACE = Space([Number("price")])
MAY_IGNORE = "; if it isn't a typo, ignore_unknown=True ignores it"
CALLS = {
    "match": (lambda: Engine(SPACE).match({"Prise": 1}), "price", MAY_IGNORE),
    "match_many": (lambda: Engine(SPACE).match_many([{"prices": 1}]), "price", MAY_IGNORE),
    "rank": (lambda: Engine(SPACE).rank({"PRICE": 1}), "price", MAY_IGNORE),
    "subscribe_many": (
        lambda: Engine(SPACE).subscribe_many([{"id": 1, "price_l": 1}]),
        "price_lo",
        "",
    ),
    "spark": (
        lambda: reject_unknown(SimpleNamespace(columns=["scor"]), ["id", "score"], "subscriptions"),
        "score",
        "",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_typo_is_named_before_it_may_be_ignored(name):
    call, meant, otherwise = CALLS[name]
    with pytest.raises(RangecastError) as caught:
        call()
    assert str(caught.value).endswith(f"\n  hint: rename it to {meant!r}{otherwise}")


def test_what_is_far_from_every_name_may_be_ignored():
    with pytest.raises(RangecastError, match=r"leave it out; ignore_unknown=True ignores it"):
        Engine(SPACE).match({"user": 1})
    with pytest.raises(RangecastError, match=r"hint: rename it, or leave it out$"):
        reject_unknown(SimpleNamespace(columns=["user"]), ["id", "score"], "subscriptions")


def test_boards_do_the_same():
    with pytest.raises(RangecastError, match=r"hint: rename it to 'arrival'$"):
        Board(1, objects={"id": [1], "position": [1.0], "value": [1.0], "arival": [1]})


SHOWN = Space([Text("title"), Point("at"), Number("price")])
SUMS = Space([Text("title"), Number("price"), Arithmetic("sums")])


@pytest.mark.parametrize(
    ("work", "known"),
    [
        (lambda: Engine(SHOWN).match({"cost": 1}), "'title', 'x', 'y', 'price'"),
        (lambda: Engine(SHOWN).match_many([{"cost": 1}]), "'title', 'x', 'y', 'price'"),
        (lambda: Engine(SHOWN).subscribe("a", "cost > 1"), "'title', 'x', 'y', 'at', 'price'"),
        (lambda: Engine(SUMS).subscribe("a", "cost + price > 1"), "'title', 'price', 'sums'"),
        (lambda: Engine(SHOWN).subscribe("a", "words(cost) has any ('a')"), "'title', 'x', 'y'"),
        (lambda: SHOWN.axis("cost"), "'title', 'x', 'y', 'at', 'price'"),
    ],
)
def test_hints_have_no_names_that_nobody_wrote(work, known):
    with pytest.raises(RangecastError) as error:
        work()
    assert known in str(error.value)
    assert "patterns" not in str(error.value)
    assert "order" not in str(error.value)
