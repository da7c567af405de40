"""The pages are true: every file and link they name exists."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import rangecast.spark
from tests import ROOT
from tests.docs.pages import ALL, DOCS, FENCE, PAGES, blocks, relative


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_all_code_is_in_blocks_that_the_tests_know(page):
    text = page.read_text()
    kinds = {kind for kind, _ in FENCE.findall(text)}
    assert kinds <= {"python", "sh", "toml", "filters", "text"}
    for block in blocks(page, "text"):
        assert not re.search(r"^\s*(>>>|rangecast|make|python) ", block, re.MULTILINE), block
    assert not re.search(r"\n\n {4,}\S", FENCE.sub("", text)), "code that isn't fenced"


@pytest.mark.parametrize("step", ["match", "rank", "cover", "merge", "TopKLists"])
def test_every_step_on_spark_is_listed(step):
    assert step in rangecast.spark.__all__
    assert f"| `{step}(" in (DOCS / "how-to" / "spark.md").read_text()


@pytest.mark.parametrize("page", ALL, ids=relative)
def test_links_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\(([^)#]*)(#[^)]*)?\)", page.read_text()):
        if "://" in target:
            continue
        linked = (page.parent / target).resolve() if target else page
        assert linked.exists(), target
        if anchor:
            assert anchor[1:] in anchors(linked), f"{target}{anchor}"


def anchors(page: Path) -> list[str]:
    """The headings, as GitHub names them in links."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings]


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_pages_are_listed_in_reading_order(page):
    if page.parent != ROOT and page != DOCS / "README.md":
        index = (DOCS / "README.md").read_text()
        assert f"({page.relative_to(DOCS)})" in index


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_files_that_a_page_names_exist(page):
    folders = [ROOT, ROOT / "rangecast", page.parent]
    for path in re.findall(r"`([\w./-]+/[\w./-]*\.(?:py|md|toml))`", page.read_text()):
        if not path.startswith("out/"):
            assert any((folder / path).exists() for folder in folders), path


def test_pages_that_the_code_names_exist():
    for folder in ("rangecast", "benchmarks", "experiments", "examples", "deploy"):
        for path in (ROOT / folder).rglob("*.py"):
            for named in re.findall(r"\bdocs/[\w/-]+\.md|\b[A-Z_]+\.md", path.read_text()):
                assert named == "RESULTS.md" or (ROOT / named).exists(), f"{path}: {named}"


def test_the_picture_of_the_floors_is_true():
    floors = blocks(DOCS / "explanation" / "architecture.md", "text")[0]
    package = ROOT / "rangecast"
    parts = {path.stem for path in package.iterdir() if not path.name.startswith("__")}
    assert parts - {"py"} <= set(re.findall(r"\w+", floors))


def test_the_first_page_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_prose_fits_in_100_characters(page):
    prose = FENCE.sub("", page.read_text()).splitlines()
    wide = [line for line in prose if len(line) > 100 and not line.startswith("|")]
    assert not wide, "\n".join(wide)


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_tables_are_whole(page):
    text = re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text()))
    broken = [line for line in text.splitlines() if " | " in line and line[:1] != "|"]
    assert not broken, "\n".join(broken)


INTERNALS = {
    ROOT / "CONTRIBUTING.md",
    *DOCS.glob("explanation/architecture.md"),
    *DOCS.glob("explanation/internals/*.md"),
}


@pytest.mark.parametrize("page", [page for page in PAGES if page not in INTERNALS], ids=relative)
def test_users_are_sent_to_public_names_only(page):
    for module, name in re.findall(r"\b(rangecast\.\w+)\.(\w+)[`(]", page.read_text()):
        if name != "daemon":  # the value of a setting of Spark's
            assert name in importlib.import_module(module).__all__, f"{module}.{name}"
    for module in re.findall(r"^>>> from (\S+) import", page.read_text(), re.MULTILINE):
        if module.startswith("rangecast"):
            assert module.count(".") < 2, module
