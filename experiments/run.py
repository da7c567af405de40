"""Measure the rows of experiments that aren't there yet, here or on Spark, and write the pages."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.experiment import Experiment, Point
from experiments.page import MADE_QUICKLY, write_page, write_results
from experiments.papers import PAPERS, experiment
from experiments.rows import RowFile
from experiments.timing import machine
from rangecast.errors import FileError, UsageError
from rangecast.report.markdown import cell
from rangecast.report.plots import need_matplotlib

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = "rows.jsonl"


def run(
    names: Iterable[str],
    folder: Path,
    *,
    size: str,
    seed: int | None = None,
    again: bool = False,
    spark: SparkSession | None = None,
    say: Callable[[str], None],
) -> list[Path]:
    """Measure what is missing of some experiments, and return the pages that were written.

    folder  where RESULTS.md goes, and into its folder `experiments` the rows and the pages
    size    one of `SIZES`
    seed    `None`: that of each experiment
    again   measure also the rows that are there
    spark   where rows without times are measured, several at once
    """
    wanted = [experiment(name) for name in names]
    papers = [paper for paper in PAPERS if any(one.name in paper.names for one in wanted)]
    below = folder / "experiments"
    pages = [below / f"{paper.name}.md" for paper in papers]
    for page in (folder / "RESULTS.md", *pages):
        _check_size(page, size)
    need_matplotlib()
    for one in wanted:
        _check_packages(one)
    rows = RowFile(below / ROWS)
    for one in wanted:
        _measure_missing(one, rows, size, seed, again, spark, say)
    for paper, page in zip(papers, pages, strict=True):
        write_page(paper, page, rows, size, seed)
    write_results(folder / "RESULTS.md", rows, size, seed)
    return [folder / "RESULTS.md", *pages]


def _check_size(page: Path, size: str) -> None:
    """Refuse to replace a page of the papers' sizes by one of smaller sizes."""
    if size != "full" and page.exists() and MADE_QUICKLY not in page.read_text(encoding="utf-8"):
        raise FileError(
            f"{page}: was made at the full size; a quick run never replaces it\n"
            "  hint: choose another folder with -o, or leave out --quick"
        )


def _check_packages(one: Experiment) -> None:
    """Reject an experiment whose peers aren't installed: before the work, not amid it."""
    for package in one.needs:
        if find_spec(package) is None:
            raise UsageError(
                f"{one.name} compares with the package {package}, which isn't installed\n"
                "  hint: pip install 'rangecast[bench]', or name other experiments"
            )


def _measure_missing(
    one: Experiment,
    rows: RowFile,
    size: str,
    seed: int | None,
    again: bool,
    spark: SparkSession | None,
    say: Callable[[str], None],
) -> None:
    seed = one.seed if seed is None else seed
    sweep = one.sweep(size)
    missing = [point for point in sweep if again or rows.get(one.name, seed, point) is None]
    kept = len(sweep) - len(missing)
    if kept:
        say(f"{one.name}: {kept} of {len(sweep)} rows are there")
    if not missing:
        return
    if spark is not None and not one.is_timed:
        measured = _on_spark(spark, one.name, seed, missing)
    else:
        measured = map(partial(measure, one.name, seed), missing)
    for number, row in enumerate(measured, kept + 1):
        rows.add(row)
        say(f"{one.name} {number}/{len(sweep)}: {_shown(row['point'])} in {row['took']:.1f} s")


def measure(name: str, seed: int, point: Point) -> dict[str, Any]:
    """Measure one row."""
    began = time.perf_counter()
    values = json.loads(json.dumps(experiment(name).measure(seed, **point), default=_plain))
    return {
        "experiment": name,
        "seed": seed,
        "point": json.loads(json.dumps(point)),
        "row": values,
        "took": round(time.perf_counter() - began, 2),
        "machine": machine(("numpy", "numba")),
    }


def _plain(value: Any) -> Any:
    """Convert a NumPy scalar to a Python one, for JSON."""
    return value.item()


def _on_spark(
    session: SparkSession, name: str, seed: int, points: list[Point]
) -> Iterator[dict[str, Any]]:
    """Measure rows on all cores, as many at a time as there are: what is done is kept."""
    cores = session.sparkContext.defaultParallelism
    for first in range(0, len(points), cores):
        some = points[first : first + cores]
        shared = session.sparkContext.parallelize(some, len(some))
        yield from shared.map(partial(measure, name, seed)).collect()


def _shown(point: Point) -> str:
    return ", ".join(f"{name} {cell(value)}" for name, value in point.items())
