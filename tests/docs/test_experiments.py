"""Experiments: what is measured is kept, pages say how they were made, and every one runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from experiments import page, papers, run, verdicts
from experiments.experiment import Claim, Experiment, Panel, Results
from experiments.papers import PAPERS, Paper, chosen
from experiments.rows import RowFile
from rangecast.errors import FileError, UsageError
from rangecast.report.markdown import Table
from tests import ROOT

COUNTS = {"tiny": 1, "quick": 2, "full": 3}


class Squares:
    """An experiment of one's own: the squares of a few numbers; it can be killed."""

    def __init__(self) -> None:
        self.measured: list[int] = []
        self.killed_at: int | None = None

    def measure(self, seed: int, x: int) -> dict[str, Any]:
        if x == self.killed_at:
            raise KeyboardInterrupt
        self.measured.append(x)
        return {"square": x * x + seed}

    def experiment(self) -> Experiment:
        def claims(results: Results) -> list[Claim]:
            squares = results.column("square")
            return [Claim("Table I", "squares grow", squares == sorted(squares), f"{squares}")]

        return Experiment(
            name="cover-squares",
            title="Squares",
            parts=("Table I", "Figure 2"),
            about="The squares of a few numbers.",
            points=lambda size: ({"x": x} for x in range(COUNTS[size])),
            measure=self.measure,
            printed={"Table I": {"square": {"x = 1": 2.0, "x = 2": 4.0}}},
            ours=lambda results: {"Table I": results.by("x = {x}", ["square"])},
            claims=claims,
            tables=lambda results: [Table("All", ["x"], [[row["x"]] for row in results])],
            panels=lambda results: [Panel("Squares", "x", "y", [results.line("", "x", "square")])],
            verdicts={
                "Table I": "Agrees: {least} times, by hand.",
                "Figure 2": "Can't be compared.",
            },
        )


@pytest.fixture
def squares(monkeypatch: pytest.MonkeyPatch) -> Squares:
    made = Squares()
    only = Paper("000", "cover", "squares", ("squares",), {"Figure 3": "a drawing"})
    for module in (papers, page, run):
        monkeypatch.setattr(module, "PAPERS", (only,))
    for module in (papers, run):
        monkeypatch.setattr(module, "experiment", lambda name: made.experiment())
    return made


def ran(folder: Path, size: str = "full", **options: Any) -> list[str]:
    said: list[str] = []
    run.run(["cover-squares"], folder, size=size, say=said.append, **options)
    return said


def test_a_page_has_the_papers_values_beside_ours(squares: Squares, tmp_path: Path) -> None:
    ran(tmp_path)
    text = (tmp_path / "experiments" / "cover.md").read_text()
    assert "| square, paper |  | 2 | 4 |" in text
    assert "| square, ours | 0 | 1 | 4 |" in text
    assert "| square, ratio |  | 0.50 | 1.00 |" in text
    assert "| squares grow | yes | [0, 1, 4] |" in text
    assert "Agrees: 0.50 times, by hand." in text
    assert "Rows rest on" not in text, "nothing of a point says how large it is"
    assert "Made by `python -m experiments run cover-squares`." in text
    assert (tmp_path / "experiments" / "cover-squares.png").stat().st_size > 5_000
    index = (tmp_path / "RESULTS.md").read_text()
    values = "| Table I | square, x = 1: 2 | 1 | 0.75 (0.50 to 1.00) | 1 of 1 |"
    assert f"{values} Agrees: 0.50 times, by hand. |" in index
    assert "| Figure 3 |  |  |  |  | a drawing |" in index


def test_a_run_that_was_killed_goes_on_where_it_was(squares: Squares, tmp_path: Path) -> None:
    squares.killed_at = 2
    with pytest.raises(KeyboardInterrupt):
        ran(tmp_path)
    rows = tmp_path / "experiments" / "rows.jsonl"
    with rows.open("a") as file:
        file.write('{"experiment": "cover-squ')  # killed while it wrote
    squares.killed_at = None
    said = ran(tmp_path)
    assert squares.measured == [0, 1, 2]
    assert said[0] == "cover-squares: 2 of 3 rows are there"
    assert said[1].startswith("cover-squares 3/3: x 2 in ")
    assert [json.loads(line)["point"]["x"] for line in rows.read_text().splitlines()] == [0, 1, 2]
    assert ran(tmp_path) == ["cover-squares: 3 of 3 rows are there"]
    assert squares.measured == [0, 1, 2]
    ran(tmp_path, again=True)
    assert squares.measured == [0, 1, 2, 0, 1, 2]


def test_rows_of_another_seed_are_other_rows(squares: Squares, tmp_path: Path) -> None:
    ran(tmp_path)
    ran(tmp_path, seed=7)
    assert squares.measured == [0, 1, 2, 0, 1, 2]
    text = (tmp_path / "experiments" / "cover.md").read_text()
    assert "| square, ours | 7 | 8 | 11 |" in text
    assert "by hand" not in text, "the sentence is about another run"
    assert "`python -m experiments run cover-squares --seed 7`" in text


def test_a_page_whose_rows_are_missing_says_so(squares: Squares, tmp_path: Path) -> None:
    squares.killed_at = 1
    with pytest.raises(KeyboardInterrupt):
        ran(tmp_path)
    rows = RowFile(tmp_path / "experiments" / "rows.jsonl")
    page.write_page(run.PAPERS[0], tmp_path / "cover.md", rows, "full", None)
    assert "1 of 3 rows are measured" in (tmp_path / "cover.md").read_text()


def test_a_full_page_shows_quick_rows_until_its_own_are_there(
    squares: Squares, tmp_path: Path
) -> None:
    ran(tmp_path, "quick")
    squares.killed_at = 2
    with pytest.raises(KeyboardInterrupt):
        ran(tmp_path)
    rows = RowFile(tmp_path / "experiments" / "rows.jsonl")
    page.write_page(run.PAPERS[0], tmp_path / "cover.md", rows, "full", None)
    page.write_results(tmp_path / "index.md", rows, "full", None)
    text = (tmp_path / "cover.md").read_text()
    assert "At the quick size; 2 of 3 rows of the full one are there." in text
    assert "run cover-squares --quick`" in text
    assert "| square, ours | 0 | 1 |" in text
    assert "by hand" not in text
    index = (tmp_path / "index.md").read_text()
    assert "made at the quick size; 2 of 3 rows of the full one" in index


@pytest.mark.parametrize("name", ["RESULTS.md", "experiments/cover.md"])
def test_a_quick_run_never_replaces_a_full_page(
    squares: Squares, tmp_path: Path, name: str
) -> None:
    ran(tmp_path, "quick")
    text = (tmp_path / name).read_text()
    assert "Made at the quick size" in text
    assert "--quick`" in text
    assert "by hand" not in text
    ran(tmp_path)
    full = (tmp_path / name).read_text()
    assert "Made at the quick size" not in full
    with pytest.raises(FileError, match="a quick run never replaces it"):
        ran(tmp_path, "quick")
    assert (tmp_path / name).read_text() == full


def test_a_file_that_has_no_rows_is_rejected_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"experiment": 1}\n')
    with pytest.raises(FileError, match=r"line 1: isn't a row of an experiment"):
        RowFile(path)
    assert path.read_text() == '{"experiment": 1}\n'


def test_a_missing_package_is_an_error_before_the_work(
    squares: Squares, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "find_spec", lambda name: None)
    made = squares.experiment()
    object.__setattr__(made, "needs", ("nowhere",))
    monkeypatch.setattr(run, "experiment", lambda name: made)
    with pytest.raises(UsageError, match="compares with the package nowhere"):
        ran(tmp_path)
    assert squares.measured == []


def of_part(verdict: str, *claims: Claim, reduced: str = "", ratio: float = 1.0) -> list[str]:
    """Return the problems of an experiment with one part."""
    made = Experiment(
        name="cover-squares",
        title="Squares",
        parts=("Table I",),
        about="",
        points=lambda size: (),
        measure=lambda seed: {},
        printed={"Table I": {"square": {"x": 2.0}}} if ratio else {},
        ours=lambda results: {"Table I": {"square": {"x": 2.0 * ratio}}},
        claims=lambda results: claims,
        verdicts={"Table I": verdict},
        reduced={"Table I": reduced} if reduced else {},
    )
    return [text.partition(": ")[2] for text in verdicts.problems(made, Results([]))]


HELD, FAILED = (Claim("Table I", "squares grow", holds, "-") for holds in (True, False))
REPLACED = HELD._replace(is_ours=True)


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (of_part("Agrees.", HELD), None),
        (of_part("Agrees.", HELD, FAILED), "agrees without reserve, and doesn't hold"),
        (of_part("Agrees in part: one of two.", HELD, FAILED), None),
        (of_part("Agrees in part.", FAILED, ratio=0), "agrees in part, and nothing holds"),
        (of_part("Agrees.", HELD, REPLACED), "a claim was replaced by one of ours"),
        (of_part("Agrees.", REPLACED, ratio=0), "nothing that the paper prints was tested"),
        (of_part("Differs; it agrees elsewhere.", REPLACED, ratio=0), "nothing that the paper"),
        (of_part("Agrees.", HELD, reduced="a tenth"), "below the paper's size"),
        (of_part("Differs, but agrees.", HELD, reduced="a tenth"), "below the paper's size"),
        (of_part("Below the paper's size: it grows.", HELD, reduced="a tenth"), None),
        (of_part("Agrees: {least} times.", ratio=1.3), None),
        (of_part("Agrees.", ratio=1.5), "values are [1.5] times the paper's"),
        (of_part("Fine.", HELD), "a verdict opens with one of"),
        (of_part("", HELD), "a verdict opens with one of"),
    ],
)
def test_a_verdict_never_says_more_than_was_tested(found: list[str], problem: str | None) -> None:
    assert bool(found) == (problem is not None), found
    assert problem is None or any(problem in text for text in found), found


def test_the_verdicts_of_the_docs_say_what_their_rows_show() -> None:
    rows = RowFile(ROOT / "docs" / "reference" / "experiments" / "rows.jsonl")
    wrong = []
    for name in chosen(["all"]):
        shown = page.load(papers.experiment(name), rows, "full", None)
        if shown.results is not None and shown.by_hand:
            wrong += verdicts.problems(shown.experiment, shown.results)
    assert wrong == []


def test_rows_say_what_they_rest_on() -> None:
    sizes = {"updates": 50_000, "interests": 0, "algorithm": "dense", "epsilon": None}
    rows = [{**sizes, "k": 1, "replica": replica} for replica in range(8)]
    rows += [{**sizes, "k": 2, "replica": replica, "updates": 10_000} for replica in range(2)]
    assert verdicts.rests_on(Results(rows)) == "updates: 10,000 to 50,000; replicas: 2 to 8"


def experiments(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run `python -m experiments`."""
    command = [sys.executable, "-m", "experiments", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == code, done.stderr
    return done


@pytest.mark.process
def test_what_a_user_names() -> None:
    four = ["vcr-side", "vcr-overlap", "vcr-hashing", "vcr-decomposition"]
    assert chosen(["vcr-side", "002"]) == four
    assert chosen(["all"]) == [name for paper in PAPERS for name in paper.names]
    with pytest.raises(UsageError, match="there is no experiment 'vcrs'"):
        chosen(["vcrs"])
    listed = experiments("list").stdout
    assert len(listed.splitlines()) == len(chosen(["all"]))
    assert "R-tree / VCR, n = 32,000: 90%-10%: 4.64" in experiments("show", "vcr").stdout
    error = experiments("run", "nothing", code=2).stderr
    assert "there is no experiment 'nothing'" in error


@pytest.mark.parametrize("name", [paper.names[0] for paper in PAPERS])
def test_an_experiment_of_each_paper_runs_at_a_tiny_size(name: str, tmp_path: Path) -> None:
    check_run(name, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("name", [name for paper in PAPERS for name in paper.names[1:]])
def test_every_experiment_runs_at_a_tiny_size(name: str, tmp_path: Path) -> None:
    check_run(name, tmp_path)


def check_run(name: str, tmp_path: Path) -> None:
    one = papers.experiment(name)
    assert one.name == name
    assert set(one.verdicts) <= set(one.parts)
    assert set(one.printed) <= set(one.parts)
    run.run([name], tmp_path, size="tiny", say=lambda text: None)
    results = page.load(one, RowFile(tmp_path / "experiments" / "rows.jsonl"), "tiny", None).results
    assert results is not None
    assert set(one.ours(results)) <= set(one.parts)
    assert {claim.part for claim in one.claims(results)} <= set(one.parts)
    (paper,) = [paper for paper in PAPERS if name in paper.names]
    text = (tmp_path / "experiments" / f"{paper.name}.md").read_text()
    section = text[text.index(f"## {one.title}") :].partition("\n## ")[0]
    assert "| ---" in section
    assert "rows are measured" not in section
    assert (tmp_path / "experiments" / f"{name}.png").stat().st_size > 5_000


def test_rows_that_count_are_the_same_on_spark(tmp_path: Path, spark: Any) -> None:
    found = []
    for engine, folder in ((None, tmp_path / "here"), (spark, tmp_path / "spark")):
        run.run(["merge-storage"], folder, size="tiny", spark=engine, say=lambda text: None)
        rows = (folder / "experiments" / "rows.jsonl").read_text().splitlines()
        found.append([(row["point"], row["row"]) for row in map(json.loads, rows)])
    assert found[0] == found[1]
    assert len(found[0]) == 20


def test_hashed_and_direct_lists_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from experiments.vcr import hashing

    asked = []
    original = hashing.index

    def noticing(*given: Any, **options: Any) -> Any:
        asked.append(options["hashed"])
        return original(*given, **options)

    monkeypatch.setattr(hashing, "index", noticing)
    for kind in hashing.KINDS:
        hashing.measure(0, 50, 5, [60, 40], kind)
    assert asked == [False, True], "an index left to choose would hash a large space itself"


def test_the_results_of_the_docs_are_what_their_rows_say(tmp_path: Path) -> None:
    docs = ROOT / "docs" / "reference"
    rows = RowFile(docs / "experiments" / "rows.jsonl")
    page.write_results(tmp_path / "RESULTS.md", rows, "full", None)
    todo = "hint: python -m experiments run all -o docs"
    assert (tmp_path / "RESULTS.md").read_text() == (docs / "RESULTS.md").read_text(), todo
