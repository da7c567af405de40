"""The five papers: which experiments repeat them, and which of their parts nothing repeats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import NamedTuple

from experiments.experiment import Experiment
from rangecast.errors import UsageError


class Paper(NamedTuple):
    """A paper, and the files below its folder."""

    number: str
    name: str
    """Of its folder and of its page."""
    title: str
    files: Sequence[str]
    missing: Mapping[str, str]
    """Tables and figures that aren't made here, and why."""

    @property
    def heading(self) -> str:
        """Title of its page."""
        if not self.number.isdigit():
            return self.title.capitalize()
        return f"Paper {self.number}: {self.title}"

    @property
    def names(self) -> list[str]:
        """The names of its experiments."""
        return [f"{self.name}-{file}" for file in self.files]

    def experiments(self) -> list[Experiment]:
        """Return its experiments."""
        return [experiment(name) for name in self.names]


PAPERS = (
    Paper(
        "000",
        "cover",
        "covering",
        ("graphs", "indexes"),
        {
            "Figures 1 to 7": "drawings; docs/how-to/cover.md has a worked example of our own",
        },
    ),
    Paper(
        "001",
        "notify",
        "range top-k subscriptions",
        (
            *("uniform", "crowds", "sketch", "bounds", "shapes", "stocks", "batches"),
            *("servers", "half", "boxes", "network"),
        ),
        {
            "Figures 1 to 10, 19, 21 to 25": "drawings",
        },
    ),
    Paper(
        "002",
        "vcr",
        "virtual construct rectangles",
        ("side", "overlap", "hashing", "decomposition"),
        {"Figures 1 to 5": "drawings; tests/match/test_vcr.py has their examples"},
    ),
    Paper(
        "003",
        "rank",
        "ranked publish/subscribe",
        ("memory", "getnext", "dimensions", "overlap", "edits"),
        {
            "Figures 1 to 5": "drawings",
            "Table 1": "the parameters of the data: `rangecast generate ranked --help`",
        },
    ),
    Paper(
        "004",
        "merge",
        "merging on the Hilbert curve",
        (
            *("traffic", "insertion", "matching", "storage"),
            *("conversion", "projection", "indexing", "imperfect", "network"),
        ),
        {
            "Figures 1 to 6": "drawings; docs/how-to/merge.md has the curve, "
            "examples/eleven_brokers.py a network like that of Figure 1",
        },
    ),
    Paper(
        "beyond",
        "beyond",
        "beyond the papers",
        ("count", "history", "near", "quiet", "servers", "billion"),
        {},
    ),
)


def experiment(name: str) -> Experiment:
    """Return an experiment by its name."""
    module = import_module(f"experiments.{name.replace('-', '.', 1)}")
    found: Experiment = module.EXPERIMENT
    return found


def chosen(names: Iterable[str]) -> list[str]:
    """Return the names of experiments for what a user named: those, papers, or `all`."""
    found: dict[str, None] = {}
    for name in names:
        papers = [paper for paper in PAPERS if name in ("all", paper.name, paper.number)]
        some = [one for paper in papers for one in paper.names]
        if not some and any(name in paper.names for paper in PAPERS):
            some = [name]
        if not some:
            known = ", ".join(one for paper in PAPERS for one in (paper.name, *paper.names))
            raise UsageError(f"there is no experiment {name!r}\n  hint: choose from all, {known}")
        found |= dict.fromkeys(some)
    return list(found)
