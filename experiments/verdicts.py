"""Verdicts: a sentence by hand on each part, held against what its rows can show.

A verdict opens with one of `OPENINGS`. It says that something agrees only of what was tested as the
paper prints it, at the paper's size: `problems` names the verdicts that say more.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import NamedTuple

from experiments.experiment import Claim, Experiment, Results, Values

AGREES = "Agrees"
IN_PART = "Agrees in part"
OPENINGS = (
    IN_PART,
    AGREES,
    "Differs",
    "Below the paper's size",
    "Can't be compared",
    "Can't be regenerated",
    "No claim of the paper",
)
CLOSE = 1.4
"""Values that agree are at most this many times one another."""
_TIMES = (", us", ", ms")
SIZES = (
    *("commands", "n", "of", "objects", "interests", "servers", "brokers", "nodes"),
    *("updates", "changes", "events", "publications", "replica"),
)
"""Values of a point that say how large a row is."""


class Compared(NamedTuple):
    """The paper's values of a part, and ours."""

    printed: Values
    ours: Values

    size: str

    def ratio(self, row: str, column: str) -> float | None:
        """Return ours / the paper's, if both are there, of one size, and the paper's isn't 0."""
        paper, ours = self.printed.get(row, {}).get(column), self.ours.get(row, {}).get(column)
        return ours / paper if paper and ours is not None and self.size == "full" else None

    def ratios(self) -> list[float]:
        """Return all of them, without those of times where the paper gives anything else."""
        names = [row for row in self.printed if not row.endswith(_TIMES)] or [*self.printed]
        places = ((row, column) for row in names for column in self.printed[row])
        found = (self.ratio(*place) for place in places)
        return [ratio for ratio in found if ratio is not None]


def verdict(one: Experiment, part: str, results: Results) -> str:
    """Return the verdict on a part, with the numbers of the rows; empty: there is none."""
    text = " ".join(one.verdicts.get(part, "").split())
    if "{" not in text:
        return text
    compared = Compared(one.printed.get(part, {}), one.ours(results).get(part, {}), "full")
    ratios = compared.ratios()
    facts: dict[str, object] = dict(one.facts(results))
    if ratios:
        facts |= {"least": f"{min(ratios):.2f}", "most": f"{max(ratios):.2f}"}
        facts |= {"middle": f"{median(ratios):.2f}"}
    return text.format(**facts)


def rests_on(results: Results) -> str:
    """Return what the rows rest on: the sizes of their points, and how many replicas."""
    found = []
    for name in SIZES:
        values = [value for value in results.distinct(name) if isinstance(value, int)]
        if name == "replica" and values:
            found.append(f"replicas: {_replicas(results)}")
        elif values and max(values) > 0:
            low, high = min(values), max(values)
            span = f"{high:,}" if low == high else f"{low:,} to {high:,}"
            found.append(f"{'subscriptions' if name in ('n', 'of') else name}: {span}")
    return "; ".join(dict.fromkeys(found))


def _replicas(results: Results) -> str:
    """Return how many replicas a mean has, from the fewest to the most."""
    counts: dict[str, int] = {}
    for row in results:
        kind = str([(name, row.get(name)) for name in ("algorithm", "k", "epsilon")])
        counts[kind] = counts.get(kind, 0) + 1
    low, high = min(counts.values()), max(counts.values())
    return f"{high}" if low == high else f"{low} to {high}"


def problems(one: Experiment, results: Results) -> Iterator[str]:
    """Yield what is wrong with the verdicts on the rows of the full size."""
    claims = list(one.claims(results))
    ours = one.ours(results)
    for part in one.parts:
        text = verdict(one, part, results)
        compared = Compared(one.printed.get(part, {}), ours.get(part, {}), "full")
        some = [claim for claim in claims if claim.part == part]
        for problem in _problems(text, part in one.reduced, some, compared.ratios()):
            yield f"{one.name}, {part}: {problem}"


def _problems(
    text: str, is_reduced: bool, claims: list[Claim], ratios: list[float]
) -> Iterator[str]:
    opening = next((known for known in OPENINGS if text.startswith(known)), None)
    if opening is None:
        yield f"a verdict opens with one of {OPENINGS}; given: {text[:40]!r}"
        return
    if "agree" not in text.lower():
        return
    printed = [claim for claim in claims if not claim.is_ours]
    if is_reduced:
        yield "says that something agrees, below the paper's size"
    if not printed and not ratios:
        yield "says that something agrees, and nothing that the paper prints was tested"
    if opening == AGREES:
        failed = [claim.says for claim in printed if not claim.holds]
        if failed:
            yield f"agrees without reserve, and doesn't hold: {failed}"
        apart = [ratio for ratio in ratios if not 1 / CLOSE <= ratio <= CLOSE]
        if apart:
            yield f"agrees without reserve, and values are {apart} times the paper's"
        if len(printed) < len(claims):
            yield "agrees without reserve, and a claim was replaced by one of ours"
    elif opening == IN_PART and not ratios and not any(claim.holds for claim in printed):
        yield "agrees in part, and nothing holds"
