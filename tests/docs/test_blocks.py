"""The blocks of a page run in the order in which a reader meets them, from an empty folder."""

from __future__ import annotations

import doctest
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import rangecast
from rangecast.model.space import Space
from tests import ROOT
from tests.docs.pages import DOCS, PAGES, all_blocks, blocks, relative
from tests.support.server.served import Served

EXTRAS = set(
    tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
)
TARGETS = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
ADDRESS = "http://127.0.0.1:8080"
SAVED = re.compile(r"[Ss]ave \S+ \S+ as\s+`([\w.-]+)`")
"""A sentence that names the file of the block after it."""


class Reader:
    """Runs the blocks of one page, as a reader would: in a folder, against the page's server."""

    def __init__(self, page: Path, folder: Path, cli: Callable[..., Any]):
        self._page = page
        self._folder = folder
        self._cli = cli
        self._names: dict[str, Any] = {}
        self._examples = 0
        self._server: Served | None = None

    def follow(self) -> None:
        """Run all blocks."""
        rest = self._page.read_text()
        for language, text in all_blocks(self._page):
            before, _, rest = rest.partition(f"```{language}\n{text}```")
            if saved := SAVED.findall(before):
                (self._folder / saved[-1]).write_text(text)
            elif language == "python":
                self._python(text)
            elif language == "sh":
                for line in text.replace("\\\n", " ").splitlines():
                    self._command(shlex.split(line, comments=True))

    def _python(self, text: str) -> None:
        assert ">>> " in text, "an example without prompts isn't run"
        self._examples += 1
        name = f"{self._page.stem}-{self._examples}"  # doctest finds the source of a name by it
        test = doctest.DocTestParser().get_doctest(text, self._names, name, str(self._page), 0)
        runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
        report: list[str] = []
        runner.run(test, out=report.append, clear_globs=False)
        self._names = test.globs
        assert not runner.summarize(verbose=False).failed, "".join(report)

    def _command(self, words: list[str]) -> None:
        match words:
            case []:
                pass
            case ["make", target, *_]:
                assert target in TARGETS
            case ["pip", "install", package]:
                wheel = f"dist/rangecast-{rangecast.__version__}-"
                assert package[0] == "." or package.startswith(wheel)
                extras = re.search(r"\[(.*)\]", package)
                assert set(extras[1].split(",") if extras else []) <= EXTRAS
            case ["rangecast", "serve", *options]:
                self._serve(options)
            case ["rangecast", "worker", *_]:
                pass  # tests/server/workers has run it, with Kafka
            case ["rangecast", *arguments]:
                self._cli(*arguments, cwd=self._folder)
            case ["curl", *arguments]:
                there = os.environ["RANGECAST_SERVER"]
                given = [one.replace(ADDRESS, there) for one in arguments]
                done = subprocess.run(["curl", "-sS", *given], capture_output=True, text=True)
                assert done.returncode == 0, done.stderr
                assert '"status":4' not in done.stdout, done.stdout
            case _:
                pytest.fail(f"no way to run this: {shlex.join(words)}")

    def _serve(self, options: list[str]) -> None:
        """Start a server, unless one runs: a page may show several ways to start it."""
        given = {name: value for name, value in pairwise([*options, ""]) if name[:2] == "--"}
        spaces = {}
        if "--space" in given:
            file = self._folder / given["--space"]
            spaces[file.stem] = Space.load(file)
        if self._server is None and "--log" not in given:
            data = self._folder / given["--data"]
            assert not data.exists(), f"{data.name} has other files already"
            self._server = Served(data=data, spaces=spaces)
            os.environ["RANGECAST_SERVER"] = self._server.url

    def close(self) -> None:
        """Stop the server."""
        if self._server is not None:
            self._server.stop()


def is_on_spark(page: Path) -> bool:
    return bool(re.search(r"rangecast\.spark import|rangecast pipeline", page.read_text()))


def runnable() -> list[Any]:
    """The pages with code; those that need Spark share its session."""
    pages = [page for page in PAGES if blocks(page, "python") + blocks(page, "sh")]
    marks = [pytest.mark.spark, pytest.mark.xdist_group("spark_elsewhere")]
    return [
        pytest.param(page, marks=marks if is_on_spark(page) else [], id=relative(page))
        for page in pages
    ]


@pytest.fixture
def reader(
    request: pytest.FixtureRequest,
    page: Path,
    tmp_path: Path,
    cli: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Reader]:
    if is_on_spark(page):
        request.getfixturevalue("spark")
    monkeypatch.setenv("RANGECAST_SERVER", "")  # and put back at the end
    monkeypatch.delenv("RANGECAST_SERVER")
    folder = tmp_path / "reader"
    folder.mkdir()
    if page.parent != DOCS / "tutorials":  # others may name files of the repository
        shutil.copytree(ROOT / "examples", folder / "examples")
    monkeypatch.chdir(folder)
    reader = Reader(page, folder, cli)
    yield reader
    reader.close()


@pytest.mark.parametrize("page", runnable())
def test_the_blocks_run_in_order(page: Path, reader: Reader) -> None:
    reader.follow()


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "toml")], ids=relative)
def test_toml_examples_can_be_read(page: Path) -> None:
    for text in blocks(page, "toml"):
        assert len(Space.from_toml(text) if "[[attribute]]" in text else tomllib.loads(text))
