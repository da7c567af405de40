"""A cell is read the same whatever its neighbours, its format and the interface."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rangecast.errors import RangecastError
from rangecast.model.encoding.events import EventFile, encode_event
from rangecast.model.encoding.subscriptions import read_subscriptions
from rangecast.model.io import json_lines
from rangecast.model.io.records import Records, table_source
from rangecast.model.io.rejected import CollectedRows
from rangecast.model.space import Space
from tests.support.examples import examples
from tests.support.readers import ATTRIBUTES

kinds = pytest.mark.parametrize("kind", ATTRIBUTES)
NUMBERS = """
0 -0 5 1 5.0 1.0 0.1 -2.5 1e3 1E5 1e-7 1e300 1e400 -1e400 1e99999999999999999999
-1e99999999999999999999 1e-99999999999999999999 0e99999999999999999999 5.00000000000000000001
9007199254740992 9007199254740993 -9007199254740993 9007199254740993.0 9007199254740992.5
9223372036854775807 9223372036854775808 18446744073709551615 99999999999999999999 1e25 123456789012
0.30000000000000004 0.1000000000000000055511151231257827021181583404541015625 4e18 3e19
""".split()  # noqa: SIM905
NUMBERS += ["1" * 500, "-" + "1" * 5000, "0." + "0" * 500 + "1", "1." + "0" * 500]
TEXTS = """
tech energy de EU 1_0 0x1F 0X1f 1e inf -inf Infinity nan NaN +5 5. .5 007 1,5 true FALSE t yes
2026-01-31 2026-01-31T09:30 2026-01-31T09:30:00Z 2026-01-31T09:30:00.123456+02:00
2026-01-31T09:30:00.1234567Z 2026-01-31T09:30:00.1234560Z 2026-01-31T09:30:00+23:59
2026-01-31T09:30:00+24:00 0000-01-01 0000-12-31T23:30:00Z 0001-01-01 0001-01-01T00:00:00+05:00
9999-12-31T23:59:59.999999 9999-12-31T23:59:59-05:00 2026-02-30 2026-W05-6 20260131
2255-06-05T23:47:34.740993 1970-01-01T00:00:00 1969-12-31T23:59:59.999999Z 2026-01-31T24:00:00
2026-01-31T09:30:60Z
""".split()  # noqa: SIM905
TEXTS += ["", " ", " 5 ", "\xa05", "\t", "5\n", "é", "٣", "a,b", 'say "hi"', "\u2028", "x" * 200]
dates = st.from_regex(
    r"\A[0-9]{4}-[01][0-9]-[0-3][0-9]([T ][0-2][0-9](:[0-6][0-9](:[0-6][0-9](\.[0-9]{1,7})?)?)?)?"
    r"(Z|[+-][0-2][0-9](:?[0-6][0-9])?)?\Z"
)
numbers = st.one_of(
    st.sampled_from(NUMBERS),
    st.integers(-(2**70), 2**70).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
)
texts = st.one_of(
    st.sampled_from(TEXTS), numbers, dates, st.text(st.sampled_from("0123456789+-.eExXnaifT:Z "))
)
cells = texts.filter(lambda text: "\0" not in text)
tokens = st.one_of(
    numbers,
    texts.map(json.dumps),
    texts.map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.sampled_from(
        [
            *("true", "false", "null", "NaN", "Infinity", "-Infinity", "Inf", "-NaN", "01", "+1"),
            *('"\\ud800"', '"\\ud83d\\ude00"', '"\\ud83d"', "[]", "{}", '[{"b": [1.5]}]', ".5"),
            *("[" * 90 + "]" * 90, "[" * 200 + "]" * 200, "[" * 20_000 + "]" * 20_000),
            *('"}', '1} {"a": 2', "tru", "1 2", '"\t"', "'x'", '"2026-01-31 09:30:00"'),
            '{"id": 7}',
        ]
    ),
)
REJECTED = "rejected"


def verdicts(records, attribute, rows):
    """The coordinate of each row, or that it was rejected."""
    found = [REJECTED] * rows
    for some in records:
        coordinates = some.coordinates(attribute)
        for place in np.flatnonzero(some.good).tolist():
            found[int(some.batch.rows[place])] = float(coordinates[place])
    return found


def of_file(path, content, attribute, rows):
    """The verdicts of a file, with rejected rows written; each rejected row has its reason."""
    path.write_bytes(content)
    bad = CollectedRows()
    found = [REJECTED] * rows
    for ids, points in EventFile(path, Space([attribute]), rejected=bad):
        for row, point in zip(ids.to_pylist(), points[:, 0].tolist(), strict=True):
            found[row] = point
    assert sorted(one.row for one, _ in bad.kept) == [
        row for row, verdict in enumerate(found) if verdict == REJECTED
    ]
    assert all(one.reason and one.remedy for one, _ in bad.kept)
    return found


def same(first, second):
    """Equal verdicts, where a zero has no sign."""
    return [str(one) for one in first] == [str(one) for one in second]


def csv_of(texts):
    quoted = ['"' + text.replace('"', '""') + '"' for text in texts]
    return "".join(line + "\n" for line in ["a", *quoted]).encode()


def lines_of(tokens):
    return "".join(f'{{"a": {token}}}\n' for token in tokens).encode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("readers")


@kinds
@examples(60)
@given(given_cells=st.lists(cells, min_size=2, max_size=6))
def test_a_cell_of_csv_is_read_as_if_it_were_alone(kind, given_cells, folder):
    attribute = ATTRIBUTES[kind]
    path = folder / "e.csv"
    together = of_file(path, csv_of(given_cells), attribute, len(given_cells))
    alone = [of_file(path, csv_of([cell]), attribute, 1)[0] for cell in given_cells]
    assert same(together, alone)


@kinds
@examples(60)
@given(given_tokens=st.lists(tokens, min_size=2, max_size=6), border=st.integers(1, 60))
def test_a_value_of_json_is_read_as_if_it_were_alone(kind, given_tokens, border, folder):
    attribute = ATTRIBUTES[kind]
    path = folder / "e.jsonl"
    together = of_file(path, lines_of(given_tokens), attribute, len(given_tokens))
    alone = [of_file(path, lines_of([token]), attribute, 1)[0] for token in given_tokens]
    assert same(together, alone)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lines, "_BLOCK", border)
        cut = of_file(path, lines_of(given_tokens), attribute, len(given_tokens))
    assert same(cut, alone)


@kinds
@examples(60)
@given(given_numbers=st.lists(numbers, min_size=1, max_size=5))
@example(given_numbers=["70470901"])  # a day, if it were a text
def test_a_number_is_the_same_in_every_format(kind, given_numbers, folder):
    attribute, rows = ATTRIBUTES[kind], len(given_numbers)
    from_json = of_file(folder / "f.jsonl", lines_of(given_numbers), attribute, rows)
    decimals = [{"a": Decimal(one)} for one in given_numbers if len(one) < 20]
    if kind in ("category", "string", "hierarchy"):
        assert from_json == [REJECTED] * rows  # a number is no text
        return
    if kind == "boolean":  # true and false, and numbers that are exactly 0 or 1
        assert set(from_json) <= {0.0, 1.0, REJECTED}
    assert same(from_json, of_file(folder / "f.csv", csv_of(given_numbers), attribute, rows))
    given_short = [one for one in given_numbers if len(one) < 20]
    bad = CollectedRows()
    records = Records(table_source(decimals, "events"), bad, lambda *_: None)
    expected = [
        verdict for verdict, one in zip(from_json, given_numbers, strict=True) if one in given_short
    ]
    assert same(verdicts(records, attribute, len(decimals)), expected)


moments = st.datetimes(timezones=st.none() | st.just(UTC))
PYTHON = [
    *(None, True, False, 0, 1, 5, -3, 2**53 + 1, 2**64, 10**400, -(10**5000), 1.0, 1.5, -0.0),
    *(math.nan, math.inf, Decimal("5.0"), Decimal("NaN"), Decimal("sNaN"), Decimal("1e400")),
    *("tech", "5", "", " ", "\ud800", "é", b"x", [1], {}, object, np.int64(5), np.int8(1)),
    *(np.uint64(2**64 - 1), np.float32(0.1), np.float16(1.5), np.float64(2.0), np.float64("nan")),
    *(np.str_("tech"), np.bool_(True), np.bytes_(b"x"), np.array(5), np.array([5]), np.array("a")),
    *(pd.NaT, pd.NA, pd.Timestamp("2026-01-31"), pd.Timestamp("2026-01-31T00:00:00.000000001")),
    *(pd.Timestamp("2026-01-31", tz="Europe/Rome"), pd.Timedelta(1), datetime(2026, 1, 31).date()),
    *(np.datetime64("2026-01-31"), np.datetime64("2026-01-31T00:00:00.000000001")),
    *(np.datetime64("NaT"), np.datetime64("20000-01-01"), np.datetime64(2**62, "Y")),
    *(np.datetime64(-1, "ns"), np.datetime64(-1, "us"), np.datetime64("0000-12-31T12", "h")),
    *(np.timedelta64(5, "s"), np.timedelta64("NaT"), np.longdouble(1)),
]
values = st.one_of(st.sampled_from(PYTHON), moments, texts, st.integers(), st.floats())


def alone(value, attribute, nan):
    try:
        return float(encode_event({"a": value}, Space([attribute]), nan=nan)[0])
    except RangecastError:
        return REJECTED


@kinds
@pytest.mark.parametrize("nan", ["error", "missing"])
@examples(60)
@given(given_values=st.lists(values, min_size=1, max_size=6))
def test_a_value_in_python_is_read_as_if_it_were_alone(kind, nan, given_values):
    attribute = ATTRIBUTES[kind]
    expected = [alone(value, attribute, nan) for value in given_values]
    for table in ([{"a": value} for value in given_values], {"a": given_values}):
        bad = CollectedRows()
        found = [REJECTED] * len(given_values)
        for rows in Records(table_source(table, "events"), bad, lambda *_: None):
            coordinates = rows.coordinates(attribute, nan)
            for place in np.flatnonzero(rows.good).tolist():
                found[place] = float(coordinates[place])
        assert same(found, expected)
        assert len(bad.kept) == found.count(REJECTED)


@kinds
@examples(30)
@given(
    lows=st.lists(tokens, min_size=2, max_size=5), highs=st.lists(tokens, min_size=5, max_size=5)
)
def test_a_bound_is_read_as_if_it_were_alone(kind, lows, highs, folder):
    attribute = ATTRIBUTES[kind]
    lines = [
        f'{{"id": {row}, "a_lo": {low}, "a_hi": {high}}}\n'
        for row, (low, high) in enumerate(zip(lows, highs, strict=False))
    ]

    def boxes_of(some):
        path = folder / "s.jsonl"
        path.write_text("".join(some))
        space = Space([attribute])
        boxes = read_subscriptions(path, space, rejected=CollectedRows())
        return {
            one: tuple(str(end) for end in ends)
            for one, *ends in zip(
                boxes.ids.to_pylist(), boxes.lo[:, 0].tolist(), boxes.hi[:, 0].tolist(), strict=True
            )
        }

    together = boxes_of(lines)
    assert together == {one: box for line in lines for one, box in boxes_of([line]).items()}
