"""Imported percolator queries, judged by Lucene Monitor on the same queries and documents."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from benchmarks.java_peers import monitor
from benchmarks.started import Unavailable
from rangecast import Engine, Number, Space, Text
from rangecast.interop import percolator

WORDS = ["red", "blue", "bike", "car", "a", "b", "bikes", "é", "10"]
TAGS = ["ab", "abc", "b", "bab", "abab", "x", "ba", "AB"]
PATTERNS = ["a*", "*b", "a?", "*a*", "?b*", "ab", "b*b"]
Clause = tuple[str, dict[str, Any]]
"""A condition as the monitor reads it, and as a percolator has it."""


def clause(r: random.Random) -> Clause:
    word, other = r.sample(WORDS, 2)
    tag, pattern, low = r.choice(TAGS), r.choice(PATTERNS), r.randint(0, 9)
    high = low + r.randint(0, 5)
    made: list[Clause] = [
        (f"word title {word}", {"match": {"title": word}}),
        (f"phrase title {word}+{other}", {"match_phrase": {"title": f"{word} {other}"}}),
        (f"word tag {tag}", {"term": {"tag": tag}}),
        (f"prefix tag {tag}", {"prefix": {"tag": tag}}),
        (f"wildcard tag {pattern}", {"wildcard": {"tag": pattern}}),
        (f"range price {low} {high}", {"range": {"price": {"gte": low, "lte": high}}}),
    ]
    return r.choice(made)


def query(r: random.Random) -> Clause:
    """Conditions that must hold and, perhaps, one that must not."""
    wanted = [clause(r) for _ in range(r.randint(1, 3))]
    unwanted = [clause(r)] if r.random() < 0.3 else []
    parts = [*(text for text, _ in wanted), *(f"not {text}" for text, _ in unwanted)]
    body = {"filter": [one for _, one in wanted], "must_not": [one for _, one in unwanted]}
    return "\t".join(parts), {"bool": body}


def event(r: random.Random) -> dict[str, Any]:
    values: dict[str, Any] = {
        "title": " ".join(r.choices(WORDS, k=r.randint(1, 5))),
        "tag": r.choice(TAGS),
        "price": r.randint(0, 14),
    }
    return {name: value for name, value in values.items() if r.random() < 0.85}


def document(given: dict[str, Any]) -> str:
    kinds = {"title": "text", "tag": "keyword", "price": "number"}
    return "\t".join(f"{kinds[name]} {name} {value}" for name, value in given.items())


@pytest.mark.process
def test_queries_match_what_lucene_monitor_matches() -> None:
    r = random.Random(11)
    queries = {f"q{number}": query(r) for number in range(400)}
    events = [one for one in (event(r) for _ in range(400)) if one]
    try:
        judged = monitor(
            {name: text for name, (text, _) in queries.items()}, [*map(document, events)]
        )
    except Unavailable as missing:
        pytest.skip(f"Lucene Monitor: {missing}")
    assert not judged.rejected
    space = Space([Text("title"), Text("tag"), Number("price")])
    imported = percolator.read({name: body for name, (_, body) in queries.items()}, space)
    # Here a filter that can't match is rejected; there it matches nothing.
    never = {one.id for one in imported.rejected if "can never match" in one.reason}
    assert len(never) == len(imported.rejected) < 60
    engine = Engine(space)
    engine.subscribe_many(imported.subscriptions)
    matched = Counter[str]()
    for place, (given, many) in enumerate(zip(events, engine.match_many(events), strict=True)):
        ours, theirs = set(engine.match(given)), set(judged.ids[place])
        assert ours == set(many)
        different = {name: queries[str(name)][0] for name in ours ^ theirs}
        assert not different, (given, ours - theirs, theirs - ours, different)
        matched.update(map(str, ours))
    assert len(matched) > 200
    assert matched.total() > 4_000
    assert not never & set(matched)
