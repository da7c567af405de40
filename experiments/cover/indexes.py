"""Paper 000, section V-C: the k-d tree, the Z-curve and the naive algorithm."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from experiments.cover.commands import digest, paper_trace, play
from experiments.experiment import Claim, Experiment, Panel, Point, Results, Values
from experiments.timing import DisagreementError, race
from rangecast.cover.store import COMPARISONS, NODES
from rangecast.report.markdown import Table

COMMANDS = {"tiny": (200, 400), "quick": (3_000, 10_000), "full": (10_000, 30_000, 100_000)}
ATTRIBUTES = (3, 5, 8)
INDEXES = ("scan", "kdtree", "zcurve", "blocks")
PART = "Figures 10 to 12"

traces = lru_cache(1)(paper_trace)


def points(size: str) -> Iterator[Point]:
    """Each index with each number of attributes and commands."""
    for attributes in ATTRIBUTES:
        for commands in COMMANDS[size]:
            for index in INDEXES:
                yield {"attributes": attributes, "commands": commands, "index": index}


def measure(seed: int, attributes: int, commands: int, index: str) -> dict[str, Any]:
    """Play all commands."""
    trace = traces(commands, attributes, 0.15, seed)
    done = race({"": lambda: play(trace, index)}, rounds=1 if index == "scan" else 2)[""]
    return {
        "seconds": done.least,
        "nodes": done.answer.work(NODES) / commands,
        "comparisons": done.answer.work(COMPARISONS) / commands,
        "messages": digest(done.answer),
    }


def _over(results: Results, index: str, other: str, attributes: int) -> list[float]:
    """Return how many times as fast an index is as another one, by commands."""
    both = (results.column("seconds", attributes=attributes, index=name) for name in (other, index))
    return [slow / fast for slow, fast in zip(*both, strict=True)]


def ours(results: Results) -> dict[str, Values]:
    """The two numbers that the paper gives."""
    return {
        PART: {
            f"k-d tree over the {name}": {
                f"{2 * d} dimensions": _over(results, "kdtree", other, d)[-1] for d in ATTRIBUTES
            }
            for name, other in (("naive algorithm", "scan"), ("Z-curve", "zcurve"))
        }
    }


def claims(results: Results) -> Iterator[Claim]:
    """Yield the paper's claims about the figures."""
    for attributes in ATTRIBUTES:
        for commands in results.distinct("commands"):
            some = results.where(attributes=attributes, commands=commands)
            if len(set(some.column("messages"))) > 1:
                raise DisagreementError(f"{attributes}, {commands:,}: the messages differ")
    gains = [_over(results, "kdtree", "scan", d)[-1] for d in ATTRIBUTES]
    yield Claim(
        PART,
        "the gain by an index grows with the dimension",
        gains == sorted(gains),
        "times the scan: " + ", ".join(f"{gain:.1f}" for gain in gains),
    )
    faster = [ratio for d in ATTRIBUTES for ratio in _over(results, "kdtree", "zcurve", d)]
    yield Claim(
        PART,
        "k-d trees perform better than space-filling curves",
        min(faster) > 1,
        f"{min(faster):.2f} to {max(faster):.2f} times as fast",
    )


def tables(results: Results) -> Iterator[Table]:
    """Time and work."""
    rows = []
    for row in results:
        same = {name: row[name] for name in ("attributes", "commands")}
        name = f"{row['attributes']} attributes, {row['commands']:,} commands, {row['index']}"
        times = results.one("seconds", **same, index="scan") / row["seconds"]
        rows.append([name, row["seconds"], times, row["nodes"], row["comparisons"]])
    heads = ["", "seconds", "times the scan", "nodes per command", "comparisons per command"]
    yield Table("Time and work, p = 15%, k = 1", heads, rows)


def panels(results: Results) -> list[Panel]:
    """Time by commands, a panel per number of attributes."""
    found = []
    for d in ATTRIBUTES:
        some = results.where(attributes=d)
        lines = [some.line(name, "commands", "seconds", index=name) for name in INDEXES]
        title = f"{d} attributes ({2 * d} dimensions)"
        found.append(Panel(title, "commands", "seconds, all commands", lines, "xy"))
    return found


EXPERIMENT = Experiment(
    name="cover-indexes",
    title="Which index? (section V-C)",
    parts=(PART,),
    about="""p = 15%, 3 to 8 attributes (6 to 16 dimensions), k = 1; the two ratios are those of the
    largest number of commands. All send the same messages. The scan is the naive algorithm,
    compiled; `blocks` is ours. Both searches of a command are counted: for what covers the new
    subscription, and for roots that it covers. The figures themselves are lost in the text that we
    have.""",
    points=points,
    measure=measure,
    printed={
        PART: {
            "k-d tree over the naive algorithm": {"16 dimensions": 10},
            "k-d tree over the Z-curve": {"16 dimensions": 2},
        }
    },
    ours=ours,
    claims=claims,
    tables=tables,
    panels=panels,
    columns=3,
    panel_size=(4.2, 3.8),
    is_timed=True,
    verdicts={
        PART: """Agrees in part: the gain grows with the dimension; in 16 dimensions the k-d
        tree is 15.7 times as fast as the naive algorithm, which is compiled here, where the
        paper has 10, and 1.8 times as fast as the Z-curve, where it has 2.""",
    },
)
