"""The pages are true: every example is run, every file and link they name exists."""

from __future__ import annotations

import doctest
import importlib
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

import rangecast
import rangecast.spark
from rangecast.model.space import Space
from tests import ROOT
from tests.server.http.test_http import Served

DOCS = ROOT / "docs"
ALL = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
GENERATED = [
    DOCS / "reference" / "RESULTS.md",
    *DOCS.glob("reference/benchmarks/*.md"),
    *DOCS.glob("reference/experiments/*.md"),
]
PAGES = [page for page in ALL if page not in GENERATED]
EXTRAS = set(
    tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
)
FENCE = re.compile(r"^```(.*)\n((?s:.*?))^```$", re.MULTILINE)


def blocks(page: Path, language: str) -> list[str]:
    return [text for kind, text in FENCE.findall(page.read_text()) if kind == language]


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def having(language: str) -> list:
    """The pages with blocks in a language; those that need Spark share its session."""
    pages = [page for page in PAGES if blocks(page, language)]
    marks = [pytest.mark.spark, pytest.mark.xdist_group("spark")]
    return [pytest.param(page, marks=marks if on_spark(page) else []) for page in pages]


def on_spark(page: Path) -> bool:
    return bool(re.search(r"import.* start|rangecast pipeline", page.read_text()))


@pytest.fixture
def session(request, page, monkeypatch):
    """Spark, or a server, running already, for a page that starts one."""
    if "rangecast serve" in page.read_text() or "Client(" in page.read_text():
        monkeypatch.setenv("RANGECAST_SERVER", request.getfixturevalue("server"))
    return request.getfixturevalue("spark") if on_spark(page) else None


@pytest.fixture
def server():
    """The address of a server with the space of the pages' examples."""
    served = Served(spaces={"market": Space.load(ROOT / "examples" / "market.toml")})
    yield served.url
    served.stop()


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_all_code_is_in_blocks_that_the_tests_know(page):
    text = page.read_text()
    kinds = {kind for kind, _ in FENCE.findall(text)}
    assert kinds <= {"python", "sh", "toml", "filters", "text"}
    for block in blocks(page, "text"):
        assert not re.search(r"^\s*(>>>|rangecast|make|python) ", block, re.MULTILINE), block
    assert not re.search(r"\n\n {4,}\S", FENCE.sub("", text)), "code that isn't fenced"


@pytest.mark.parametrize("page", having("python"), ids=named)
def test_python_examples_give_what_they_show(page, session):
    found = blocks(page, "python")
    assert all(">>> " in block for block in found), "an example without prompts isn't run"
    test = doctest.DocTestParser().get_doctest("\n".join(found), {}, page.name, str(page), 0)
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    runner.run(test, out=report.append)
    assert not runner.summarize(verbose=False).failed, "".join(report)


@pytest.mark.parametrize("page", having("sh"), ids=named)
def test_shell_examples_run(page, session, cli, tmp_path):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for line in "\n".join(blocks(page, "sh")).replace("\\\n", " ").splitlines():
        match shlex.split(line, comments=True):
            case []:
                pass
            case ["make", target, *_]:
                assert target in targets
            case ["pip", "install", package]:
                assert package.startswith(f"dist/rangecast-{rangecast.__version__}-")
                extras = re.search(r"\[(.*)\]", package)
                assert set(extras[1].split(",") if extras else []) <= EXTRAS
            case ["rangecast", "serve", *_]:
                pass  # a fixture has started it
            case ["rangecast", "worker", *_]:
                pass  # test_server_workers.py has, with Kafka
            case ["rangecast", *arguments]:
                cli(*arguments)
            case ["curl", *arguments]:
                there = os.environ["RANGECAST_SERVER"]
                given = [one.replace("http://127.0.0.1:8080", there) for one in arguments]
                done = subprocess.run(["curl", "-sS", *given], capture_output=True, text=True)
                assert done.returncode == 0, done.stderr
                assert '"status":4' not in done.stdout, done.stdout
            case _:
                pytest.fail(f"no way to run this: {line}")


@pytest.mark.parametrize("page", having("toml"), ids=named)
def test_toml_examples_can_be_read(page):
    for text in blocks(page, "toml"):
        assert len(Space.from_toml(text) if "[[attribute]]" in text else tomllib.loads(text))


@pytest.mark.parametrize("step", ["match", "rank", "cover", "merge", "TopKLists"])
def test_every_step_on_spark_is_listed(step):
    assert step in rangecast.spark.__all__
    assert f"| `{step}(" in (DOCS / "how-to" / "spark.md").read_text()


@pytest.mark.parametrize("page", ALL, ids=named)
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


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_pages_are_listed_in_reading_order(page):
    if page.parent != ROOT and page != DOCS / "README.md":
        index = (DOCS / "README.md").read_text()
        assert f"({page.relative_to(DOCS)})" in index


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_files_that_a_page_names_exist(page):
    folders = [ROOT, ROOT / "rangecast", page.parent]
    for path in re.findall(r"`([\w./-]+/[\w./-]*\.(?:py|md|toml))`", page.read_text()):
        if not path.startswith("out/"):
            assert any((folder / path).exists() for folder in folders), path


def test_the_picture_of_the_floors_is_true():
    floors = blocks(DOCS / "explanation" / "architecture.md", "text")[0]
    package = ROOT / "rangecast"
    parts = {path.stem for path in package.iterdir() if not path.name.startswith("__")}
    assert parts - {"py"} <= set(re.findall(r"\w+", floors))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_prose_fits_in_100_characters(page):
    prose = FENCE.sub("", page.read_text()).splitlines()
    wide = [line for line in prose if len(line) > 100 and not line.startswith("|")]
    assert not wide, "\n".join(wide)


INTERNALS = {*DOCS.glob("explanation/architecture.md"), *DOCS.glob("explanation/internals/*.md")}


@pytest.mark.parametrize("page", [page for page in PAGES if page not in INTERNALS], ids=named)
def test_users_are_sent_to_public_names_only(page):
    for module, name in re.findall(r"\b(rangecast\.\w+)\.(\w+)[`(]", page.read_text()):
        if name != "daemon":  # the value of a setting of Spark's
            assert name in importlib.import_module(module).__all__, f"{module}.{name}"
    for module in re.findall(r"^>>> from (\S+) import", page.read_text(), re.MULTILINE):
        if module.startswith("rangecast"):
            assert module.count(".") < 2, module
