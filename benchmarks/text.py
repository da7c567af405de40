"""Conditions on texts beside matchers of many literals: batches, single texts, edits, selection."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.frame import Report
from benchmarks.harness import expected
from experiments.timing import DisagreementError
from rangecast import Category, Engine, Number, Space, String, Text
from rangecast.match.choose import build
from rangecast.match.terms.index import Selected
from rangecast.model.boxes import Boxes
from rangecast.model.encoding.events import encode_events
from rangecast.report.markdown import Table

ROUNDS = 3
WORDS = 8
"""Words of a text."""
ABOUT = f"""
Titles of {WORDS} words out of 20,000 that are made of random letters, and subscriptions to these
words. `ahocorasick_rs` and `hyperscan`, if they are installed, look for the same literals, one text
after the other, with overlapping matches; they have no batches, and an edit compiles all literals
again. Ours are whole answers: batches are columns of texts that are encoded, matched and verified,
and a single event is a dictionary. Edits are counted while no rebuild runs beside them. Processor
time, the least of at least {ROUNDS}, turn by turn, as ratios; answers are compared.
"""


def vocabulary(count: int = 20_000) -> list[str]:
    """Return words of random letters."""
    r = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    made: dict[str, None] = {}
    while len(made) < count:
        made["".join(r.choices(letters, k=r.randint(4, 10)))] = None
    return list(made)


def titles(words: list[str], count: int) -> list[str]:
    """Return texts of several words."""
    r = random.Random(2)
    return [" ".join(r.choices(words, k=WORDS)) for _ in range(count)]


def _least(works: Sequence[Callable[[], object]], rounds: int = ROUNDS) -> list[float]:
    """Return the least processor seconds of each, turn by turn."""
    took = [np.inf] * len(works)
    for _ in range(rounds):
        for place, work in enumerate(works):
            began = time.process_time()
            work()
            took[place] = min(took[place], time.process_time() - began)
    return took


def _engine(filters: list[str], space: Space | None = None) -> Engine:
    engine = Engine(space or Space([Text("title"), Number("price")]))
    engine.subscribe_many({"id": list(range(len(filters))), "filter": filters})
    return engine


class _AhoCorasick:
    name = "ahocorasick_rs"

    def __init__(self, literals: list[str]):
        module: Any = import_module(self.name)
        self.matcher = module.AhoCorasick(literals)

    def find(self, text: str) -> list[int]:
        found = self.matcher.find_matches_as_indexes(text, overlapping=True)
        return sorted({one[0] for one in found})


class _Hyperscan:
    name = "hyperscan"

    def __init__(self, literals: list[str]):
        module: Any = import_module(self.name)
        self.matcher = module.Database()
        each = [one.encode() for one in literals]
        flags = [module.HS_FLAG_SINGLEMATCH] * len(each)
        self.matcher.compile(expressions=each, ids=list(range(len(each))), flags=flags)

    def find(self, text: str) -> list[int]:
        found: list[int] = []
        self.matcher.scan(text.encode(), match_event_handler=lambda one, *_: found.append(one))
        return sorted(found)


def _literals(count: int, events: int) -> tuple[list[list[Any]], dict[str, float]]:
    """Return rows beside each peer that is there, and what was measured of ours."""
    words = vocabulary()
    literals = words[:count]
    engine, edited = (_engine([f"title contains '{one}'" for one in literals]) for _ in range(2))
    given = titles(words, events)
    columns = {"title": given}
    singles = [{"title": one} for one in given[:1000]]
    for _ in range(5):  # terms are counted at first
        engine.match_many(columns)
        for event in singles:
            engine.match(event)

    def batch() -> object:
        return engine.match_many(columns)

    def alone() -> None:
        for event in singles:
            engine.match(event)

    r = random.Random(3)

    def edits() -> None:
        for _ in range(200):
            one = r.randrange(count)
            edited.unsubscribe(one)
            edited.subscribe(one, f"title contains '{literals[one]}'")
        edited.match(singles[0])

    rows: list[list[Any]] = []
    ours: dict[str, float] = {}
    for kind in (_AhoCorasick, _Hyperscan):
        if find_spec(kind.name) is None:
            continue
        peer = kind(literals)
        found = engine.match_many(columns)
        for place, text in enumerate(given[:200]):
            if peer.find(text) != sorted(found[place]):
                raise DisagreementError(f"{kind.name} finds other literals")
        many, one, theirs_many, theirs_one = _least(
            [
                batch,
                alone,
                lambda peer=peer: [peer.find(text) for text in given],  # type: ignore[misc]
                lambda peer=peer: [peer.find(text) for text in given[:1000]],  # type: ignore[misc]
            ],
            3 * ROUNDS,
        )
        edit, build = _least([edits, partial(kind, literals)], 3)
        ours |= {kind.name: theirs_many / many}
        rows.append([kind.name, theirs_many / many, theirs_one / one, build / (edit / 400)])
    edited.wait_for_rebuild()
    ours["edits"] = 400 / _least([edits], 5 * ROUNDS)[0]
    return rows, ours


def _selection(count: int, events: int) -> list[list[Any]]:
    """Return how many conditions are verified per event, by their kind, and the time of a batch."""
    words = vocabulary()
    r = random.Random(5)
    some = [r.sample(words, 90) for _ in range(max(count // 100, 4))]
    listed = [", ".join(f"'{one}'" for one in each) for each in some]
    kinds: dict[str, Callable[[int], str]] = {
        "contains a word": lambda n: f"title contains '{words[n]}'",
        "words, all of three": lambda n: (
            f"words(title) has all ('{words[n]}', '{words[n // 2]}', '{words[n // 3]}')"
        ),
        "words, any of three": lambda n: (
            f"words(title) has any ('{words[n]}', '{words[n // 2]}', '{words[n // 3]}')"
        ),
        "a phrase": lambda n: f"words(title) has '{words[n]} {words[n // 2]}'",
        "a prefix of twelve letters": lambda n: f"title like '{words[n]} {words[n // 2]}%'",
        "a list of 90 values": lambda n: f"title in ({listed[n % len(listed)]})",
        "a word, and a narrow range": lambda n: (
            f"title contains 'e' and price between {n} and {n + 1}"
        ),
    }
    given = {"title": titles(words, events), "price": [float(n % count) for n in range(events)]}
    rows: list[list[Any]] = []
    first = 0.0
    for name, filter_of in kinds.items():
        engine = _engine([filter_of(n) for n in range(count)])
        for _ in range(3):
            found = engine.match_many(given)
        took = _least([partial(engine.match_many, given)], 3 * ROUNDS)[0]
        first = first or took
        index = engine._view.parts[0].index
        verified: Any = ""  # found by ranges: its terms select nothing
        if isinstance(index, Selected):
            verified = index.terms.counts.verified / index.terms.counts.events
        rows.append([name, found.table().num_rows / events, verified, took / first])
    return rows


def _equality(count: int, events: int) -> tuple[list[list[Any]], float]:
    """Return times of one symbol of 10,000, as a category, a string and a text, and microseconds.

    The microseconds are of a batch that is encoded already, with a category.
    """
    symbols = [f"S{n:05}" for n in range(min(10_000, count))]
    r = np.random.default_rng(4)
    wanted = r.integers(0, len(symbols), count).astype(np.float64)
    given = {"symbol": [symbols[n] for n in r.integers(0, len(symbols), events)]}
    rows: list[list[Any]] = []
    first = 0.0
    kinds = Category("symbol", symbols), String("symbol", symbols), Text("symbol", symbols)
    for attribute in kinds:
        space = Space([attribute])
        lo, hi = (np.full((count, len(space)), end) for end in (-np.inf, np.inf))
        lo[:, 0] = hi[:, 0] = wanted
        index = build(Boxes.of(lo, hi, space=space))
        points = encode_events(given, space).points
        found = len(index.match(points).rows) / events
        took = _least([partial(index.match, points)], 3)[0] / events * 1e6
        first = first or took
        rows.append([attribute.type, found, took / first])
    return rows, first


def _without_texts(count: int, events: int) -> list[list[Any]]:
    """Boxes in a space with a text that no subscription uses, beside the space without it."""
    rng = np.random.default_rng(9)
    low = rng.uniform(0, 1000, (count, 2))
    high = low + rng.uniform(0, 50, (count, 2))
    filters = [
        f"a between {lo[0]!r} and {hi[0]!r} and b between {lo[1]!r} and {hi[1]!r}"
        for lo, hi in zip(low.tolist(), high.tolist(), strict=True)
    ]
    numbers = Number("a"), Number("b")
    spaces = Space(numbers), Space([*numbers, Text("title")])
    plain, with_text = (_engine(filters, space) for space in spaces)
    points = rng.uniform(0, 1000, (events, 2))
    more = np.column_stack([points, np.full((events, 3), np.inf)])
    works = [lambda: plain.match_points(points), lambda: with_text.match_points(more)]
    match = _least(works, 20 * ROUNDS)  # a round takes a millisecond
    return [
        ["match a batch", match[1] / match[0]],
        ["memory", with_text.memory / plain.memory],
    ]


def _aim(name: str, value: float, *, least: float | None = None, most: float | None = None) -> Any:
    aim = expected(value, least=least, most=most)
    return [name, value, f"{'at least' if most is None else 'at most'} {aim}"]


def run(report: Report, *, quick: bool) -> None:
    """Show literals beside the peers, selection by kinds, equality, and sets without texts."""
    report.begin("Texts", ABOUT)
    count, events = (700, 300) if quick else (10_000, 4_000)
    rows, ours = _literals(count, events)
    headings = ["peer", "batches, peer / ours", "one by one, peer / ours", "an edit, peer / ours"]
    report.table(Table(f"{count:,} literals", headings, rows))
    headings = ["condition", "matches", "selected by terms, verified per event", "time / the first"]
    report.table(Table("What is verified", headings, _selection(count, events)))
    equal, microseconds = _equality(20_000 if quick else 1_000_000, events)
    headings = ["a symbol of 10,000", "matches", "time / the first"]
    report.table(Table("Equality", headings, equal))
    plain = _without_texts(count, events)
    headings = ["", "space with a text that is not used / without"]
    report.table(Table("Sets without texts", headings, plain))
    peers = [one for one in ours if one != "edits"]
    aims = [
        *[_aim(f"batches: times {name}", ours[name], least=1) for name in peers],
        _aim("edits per second", ours["edits"], least=10_000),
        _aim("equality, a million: microseconds per event", microseconds, most=2),
        *[_aim(f"without texts: {name}", ratio, most=1.02) for name, ratio in plain],
    ]
    report.table(Table("Aims", ["aim", "measured", "expected"], aims))
