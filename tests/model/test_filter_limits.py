"""Limits of filters, sets of ranges, and the examples of the page about the language."""

from __future__ import annotations

import itertools
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rangecast.errors import FilterError, UsageError
from rangecast.model.attributes.base import Integer, Number
from rangecast.model.attributes.text import String
from rangecast.model.filters import compile as meaning
from rangecast.model.filters import regions
from rangecast.model.filters.filter import Filter, boxes_of
from rangecast.model.space import Space
from tests.support import filter_language as language

# ---- many filters, and the object itself


def test_boxes_of_many_filters() -> None:
    space = language.space()
    texts = ["true", "x != 5", "n = 1 and x is null", "s = 'a' or h = 'EU'"]
    filters = [Filter.parse(text, space) for text in texts]
    lo, hi, owner = boxes_of(space, filters)
    assert owner.tolist() == [0, 1, 1, 2, 3, 3]
    assert (lo.dtype, hi.dtype, owner.dtype) == (np.float64, np.float64, np.int32)
    for row, some in enumerate(filters):
        assert np.array_equal(lo[owner == row], some.arrays()[0])
        assert np.array_equal(hi[owner == row], some.arrays()[1])
    lo, hi, owner = boxes_of(space, [])
    assert lo.shape == hi.shape == (0, len(space))
    assert len(owner) == 0
    with pytest.raises(UsageError, match="another space"):
        boxes_of(Space([Number("x")]), filters)


def test_a_filter_is_a_value() -> None:
    space = language.space()
    some = Filter.parse("x > 5", space)
    assert some == Filter.parse("not x <= 5", space)
    assert len({some, Filter.parse("5 < x", space)}) == 1
    assert some != Filter.parse("x > 6", space)
    assert some != Filter.parse("x > 5", language.space())
    assert repr(some) == "Filter('x > 5')"
    with pytest.raises(AttributeError):
        some.boxes = ()  # type: ignore[misc]
    copy = pickle.loads(pickle.dumps(some))
    assert (copy.boxes, str(copy)) == (some.boxes, str(some))


# ---- limits: rejected before the work is done


def wide(attributes: int) -> Space:
    return Space([Number(f"a{i}") for i in range(attributes)])


def test_what_concerns_one_attribute_stays_one_set() -> None:
    space = wide(3)
    assert len(Filter.parse(" and ".join(f"a0 != {i}" for i in range(1000)), space).boxes) == 1001
    assert len(Filter.parse(" or ".join(f"a{i % 3} = {i}" for i in range(999)), space).boxes) == 999
    many = " and ".join(f"a0 != {i}" for i in range(5000))
    assert str(Filter.parse(f"({many}) and a0 between 7 and 8", space)) == "7 < a0 < 8"
    space = Space([String("s"), Integer("n")])
    assert (
        len(Filter.parse(f"s in ({', '.join(repr(str(i)) for i in range(1000))})", space).boxes)
        == 1
    )
    assert (
        str(Filter.parse(" or ".join(f"n = {i}" for i in range(3000)), space))
        == "n between 0 and 2999"
    )


def test_a_product_is_rejected_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def counted(attributes: Any, first: Any, second: Any) -> regions.Product | int:
        nonlocal calls
        calls += 1
        return regions.meet(attributes, first, second)

    monkeypatch.setattr(meaning, "meet", counted)
    space = wide(400)
    pairs = [f"(a{2 * i} = 1 or a{2 * i + 1} = 1)" for i in range(200)]
    assert len(Filter.parse(" and ".join(pairs[:10]), space).boxes) == 1024
    assert calls == sum(2**k for k in range(1, 11))
    calls = 0
    lists = (" or ".join(f"a{60 * k + i} = 1" for i in range(60)) for k in (0, 1))
    with pytest.raises(FilterError, match="60 x 60 = 3,600 combinations of alternatives"):
        Filter.parse(" and ".join(f"({one})" for one in lists), space)
    assert calls <= 60
    calls = 0
    with pytest.raises(FilterError, match=r"over 10\^12 combinations of alternatives"):
        Filter.parse(" and ".join(pairs), space)
    assert calls <= 2046
    calls = 0
    assert len(Filter.parse(tied(100), space).boxes) == 100
    assert calls <= 10_200
    calls = 0
    with pytest.raises(FilterError, match="200 x 200 = 40,000 combinations"):
        Filter.parse(tied(200), space)
    assert calls <= 200


def tied(alternatives: int) -> str:
    """Two lists of alternatives of which only those in the same place go together."""
    lists = ((f"a0 = {i} and a{k} = {i}" for i in range(alternatives)) for k in (1, 2))
    return " and ".join(f"({' or '.join(one)})" for one in lists)


def test_alternatives_within_alternatives_are_bounded() -> None:
    space = wide(100)
    text = " or ".join(f"a0 = {i} and a1 = {i * 7}" for i in range(500))
    for i in range(2, 92):
        text = f"({text}) and a{i} > 1 or a{i} = 0"
    with pytest.raises(FilterError, match=r"too many|combinations"):
        Filter.parse(text, space)
    text = f"a0 in ({', '.join(str(2 * i) for i in range(500))})"
    for i in range(90):
        text = f"({text} or a0 = {2 * i + 1}) and a0 != {2 * i}"
    with pytest.raises(FilterError, match="too many nested alternatives"):
        Filter.parse(text, space)


def test_the_part_that_is_too_large_is_shown() -> None:
    space = wide(3)
    many = " and ".join(f"a0 != {i}" for i in range(9))
    harmless = f"(a1 = 3 or a0 = 1.5 and not ({many.replace('!=', '=').replace('and', 'or')}))"
    with pytest.raises(FilterError) as raised:
        Filter.parse(
            f"{harmless} and\na2 = 1 or a2 = 3 and (a1 = 1 or\n{many})", space, max_boxes=8
        )
    assert "this part expands to 10 boxes, more than the 8 allowed" in str(raised.value)
    assert "(line 3, column 1)\n  a0 != 0 and a0" in str(raised.value)


def test_max_boxes() -> None:
    space = wide(12)
    assert len(Filter.parse("a0 != 1", space, max_boxes=2).boxes) == 2
    with pytest.raises(FilterError, match="expands to 2 boxes, more than the 1 allowed"):
        Filter.parse("a0 != 1", space, max_boxes=1)
    assert len(Filter.parse("a0 != 1 and a0 > 1", space, max_boxes=1).boxes) == 1
    some = " or ".join(f"a{i} = 1 and a0 = 1" for i in range(1, 12))
    assert str(Filter.parse(f"{some} or a0 = 1", space, max_boxes=1)) == "a0 = 1"
    with pytest.raises(FilterError, match="expands to 2,048 boxes"):
        Filter.parse(" and ".join(f"a{i} != 1" for i in range(11)), space)


# ---- the algebra, exhaustively on a small grid

GRID = Integer("n", min=0, max=7)


def ranges_of(members: frozenset[int]) -> regions.Ranges:
    return regions.union(GRID, [(float(i), float(i)) for i in members])


def members_of(some: regions.Ranges) -> frozenset[int]:
    return frozenset(i for lo, hi in some for i in range(int(lo), int(hi) + 1))


def test_sets_of_ranges_are_sets() -> None:
    subsets = [frozenset(i for i in range(8) if bits >> i & 1) for bits in range(256)]
    for some in subsets:
        assert members_of(ranges_of(some)) == some
        outside = regions.complement(GRID, ranges_of(some))
        assert outside == ranges_of(frozenset(range(8)) - some)
    for first, second in itertools.product(subsets[::3], subsets[::5]):
        sets = (ranges_of(first), ranges_of(second))
        assert regions.intersection(sets) == ranges_of(first & second)
        assert regions.union(GRID, sets[0] + sets[1]) == ranges_of(first | second)
    three = (subsets[0b10111101], subsets[0b11011011], subsets[0b01111110])
    assert regions.intersection([ranges_of(s) for s in three]) == ranges_of(
        frozenset.intersection(*three)
    )


@pytest.mark.parametrize("coordinate", [0.0, 1.0, -1.0, 2.0**53, -(2.0**53), 2.0**60, 5e-324])
def test_neighbours_on_the_grid(coordinate: float) -> None:
    for attribute in (Number("x"), Integer("n")):
        at = coordinate if isinstance(attribute, Number) else float(int(coordinate))
        above = regions.after(attribute, at)
        assert above > at
        assert regions.before(attribute, above) == at
        assert attribute.at_least(attribute.value(at), strict=True) == above


# ---- the page about the language


def test_the_examples_of_the_page() -> None:
    page = Path("docs/reference/filters.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```(\w*)\n(.*?)```", page, re.DOTALL)
    space = Space.from_toml(next(body for kind, body in blocks if kind == "toml"))
    examples = [part for kind, body in blocks if kind == "filters" for part in body.split("\n\n")]
    assert len(examples) > 15
    for example in examples:
        text, outcome = example.strip().split("\n")
        if outcome.startswith("=> "):
            assert str(Filter.parse(text, space)) == outcome[3:]
            assert Filter.parse(outcome[3:], space) == Filter.parse(text, space)
        else:
            assert outcome.startswith("!! ")
            with pytest.raises(FilterError) as raised:
                Filter.parse(text, space)
            assert str(raised.value).split("\n")[0] == outcome[3:]
    (shown,) = (body for kind, body in blocks if kind == "text")
    with pytest.raises(FilterError) as raised:
        Filter.parse(shown.split("\n")[1].strip(), space)
    assert str(raised.value) == shown.strip()
