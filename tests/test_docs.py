"""Every example in the README and in docs/ is run."""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import rangecast.spark
from rangecast.model.space import Space

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: Path, language: str) -> list[str]:
    return [text for kind, text in FENCE.findall(page.read_text()) if kind == language]


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=lambda p: p.name)
def test_python_examples_give_what_they_show(page):
    examples = "\n".join(blocks(page, "python"))
    test = doctest.DocTestParser().get_doctest(examples, {}, page.name, str(page), 0)
    report: list[str] = []
    flags = doctest.NORMALIZE_WHITESPACE
    runner = doctest.DocTestRunner(optionflags=flags)
    runner.run(test, out=report.append)
    assert not runner.summarize(verbose=False).failed, "".join(report)


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "toml")], ids=lambda p: p.name)
def test_toml_examples_are_spaces(page):
    for text in blocks(page, "toml"):
        assert len(Space.from_toml(text))


def test_the_shell_examples_of_the_readme_run(tmp_path):
    (script,) = blocks(ROOT / "README.md", "sh")
    scripts = Path(sys.executable).parent
    for line in script.replace("\\\n", " ").splitlines():
        done = subprocess.run(
            shlex.split(line),
            cwd=tmp_path,
            env=os.environ | {"PATH": f"{scripts}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    assert {p.name for p in tmp_path.iterdir()} == {"data", "matches.parquet", "best.csv"}


@pytest.mark.parametrize("step", ["match", "rank", "cover", "merge", "KeptLists"])
def test_every_step_on_spark_is_listed(step):
    assert step in rangecast.spark.__all__
    assert f"| `{step}(" in (ROOT / "docs" / "SPARK.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target
