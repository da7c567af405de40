"""Event rules beside event-ruler, and saved searches beside Lucene Monitor, both on Java."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.frame import Report
from benchmarks.harness import expected
from benchmarks.java_peers import Answered, monitor, ruler
from benchmarks.rules_percolator import Search, in_bodies
from benchmarks.started import Unavailable
from benchmarks.text import titles, vocabulary
from experiments.timing import DisagreementError
from rangecast import Engine, Number, Space, Text
from rangecast.interop import eventbridge
from rangecast.report.markdown import Table

ROUNDS = 5
MONITOR = "Lucene Monitor"
ABOUT = f"""
*Rules* are event patterns: one of 50 sources, a prefix of a name of one or two letters, and a
range of a number. event-ruler reads each event as JSON; so do we, with `json.loads`, before `match`
or `match_many`. *Searches* ask for two words of a title of eight and a range of a price; Lucene
Monitor gets a document for each event, we get a dictionary. Both peers run in a process of their
own and answer one event after the other in one thread, after rounds that warm them up; their
compilers and collectors aren't counted. Processor time of that thread, the least of {ROUNDS}
rounds, as ratios; answers are compared. event-ruler 1.8.1 takes minutes to add 10,000 such rules.
"""

BODIES = """
The searches once more, in bodies of 1,000 events over HTTP, with the matches in the answer, from
four connections on the same two cores. Our server has each event on its disk when it answers;
OpenSearch stores no events, and gets each body as one percolate query of 1,000 documents. Processor
time of each server with all of its threads, per event, as a ratio; answers are compared.
"""
_SECONDS = 12.0


def rules_and_events(count: int, events: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return event patterns by id, and events."""
    r = random.Random(3)

    def name(length: int) -> str:
        return "".join(r.choices("abcdef", k=length))

    rules = {}
    for number in range(count):
        low = r.randint(0, 900)
        rules[f"r{number}"] = {
            "source": [f"s{r.randrange(50)}"],
            "name": [{"prefix": name(r.randint(1, 2))}],
            "load": [{"numeric": [">=", low, "<", low + r.randint(10, 300)]}],
        }
    made = [
        {"source": f"s{r.randrange(50)}", "name": name(8), "load": r.randint(0, 999)}
        for _ in range(events)
    ]
    return rules, made


def searches_and_events(count: int, events: int) -> tuple[dict[str, Search], list[dict[str, Any]]]:
    """Return searches by id, and titles with a price."""
    r = random.Random(4)
    words = vocabulary(200)
    asked = {}
    for number in range(count):
        low = r.randint(0, 900)
        first, second = r.sample(words, 2)
        asked[f"q{number}"] = Search((first, second), low, low + r.randint(10, 300))
    made = [{"title": title, "price": r.randint(0, 1_000)} for title in titles(words, events)]
    return asked, made


def _compared(ours: Sequence[Sequence[Any]], theirs: Answered) -> None:
    for place, (one, other) in enumerate(zip(ours, theirs.ids, strict=True)):
        if set(one) != set(other):
            raise DisagreementError(f"event {place}: {set(one) ^ set(other)}")


def _least(work: Callable[[], Any]) -> float:
    took = []
    for _ in range(ROUNDS):
        began = time.process_time()
        work()
        took.append(time.process_time() - began)
    return min(took)


def _row(peer: str, engine: Engine, lines: list[str], theirs: Answered) -> list[Any]:
    """Return the peer's time over ours, one by one and in batches."""
    single = [engine.match(json.loads(line)) for line in lines]
    _compared(single, theirs)
    _compared([*engine.match_many([*map(json.loads, lines)])], theirs)
    one = _least(lambda: [engine.match(json.loads(line)) for line in lines])
    batch = _least(lambda: list(engine.match_many([*map(json.loads, lines)])))
    matches = sum(map(len, single)) / len(lines)
    return [peer, f"{len(engine):,}", matches, theirs.seconds / one, theirs.seconds / batch]


def _rules(count: int, events: int) -> list[Any]:
    rules, made = rules_and_events(count, events)
    imported = eventbridge.read(rules)
    assert imported.space is not None
    engine = Engine(imported.space)
    engine.subscribe_many(imported.subscriptions)
    return _row("event-ruler", engine, [*map(json.dumps, made)], ruler(rules, made, ROUNDS))


def _engine(searches: dict[str, Search]) -> Engine:
    engine = Engine(Space([Text("title"), Number("price")]))
    rows = [{"id": name, "filter": one.filter} for name, one in searches.items()]
    engine.subscribe_many(rows)
    return engine


def _searches(count: int, events: int) -> list[Any]:
    asked, made = searches_and_events(count, events)
    queries = {
        name: "\t".join(
            [*(f"word title {word}" for word in one.words), f"range price {one.low} {one.high}"]
        )
        for name, one in asked.items()
    }
    documents = [f"text title {one['title']}\tnumber price {one['price']}" for one in made]
    theirs = monitor(queries, documents, ROUNDS)
    return _row(MONITOR, _engine(asked), [*map(json.dumps, made)], theirs)


def _in_bodies(count: int, events: int) -> list[Any]:
    asked, made = searches_and_events(count, events)
    engine = _engine(asked)
    right = [*engine.match_many(made)]
    theirs, ours = in_bodies(engine.space, asked, made, right, _SECONDS)
    return ["OpenSearch percolator", f"{count:,}", theirs / ours]


def run(report: Report, *, quick: bool) -> None:
    """Show rules and searches beside the peers."""
    report.begin("Event rules and saved searches", ABOUT)
    rules = ((500, 200),) if quick else ((1_000, 2_000),)
    searches = ((500, 200),) if quick else ((10_000, 1_000), (100_000, 300))
    rows = []
    for measured, sizes in ((_rules, rules), (_searches, searches)):
        for size in sizes:
            try:
                rows.append(measured(*size))
            except Unavailable as missing:
                report.text(f"Not run: {missing}")
    headings = ["peer", "subscriptions", "matches per event", "one by one, peer / ours"]
    report.table(Table("Processor time", [*headings, "in one batch, peer / ours"], rows))
    aims = [
        [f"{row[1]} searches, {how}: times Lucene Monitor", row[at], _aim(row[at], 10)]
        for row in rows
        if row[0] == MONITOR
        for how, at in (("one by one", 3), ("in one batch", 4))
    ]
    if not quick:  # starting it takes most of a minute
        try:
            row = _in_bodies(20_000, 20_000)
        except Unavailable as missing:
            report.text(f"Not run: {missing}")
        else:
            report.text(BODIES)
            headings = ["peer", "subscriptions", "theirs / ours"]
            report.table(Table("In bodies", headings, [row]))
            aims.append([f"in bodies: times {row[0]}", row[2], _aim(row[2], 100)])
    report.table(Table("Aims", ["aim", "measured", "expected"], aims))


def _aim(ratio: float, least: float) -> str:
    return f"at least {expected(ratio, least=least)}"
