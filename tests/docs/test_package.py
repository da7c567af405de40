"""The package as a stranger meets it: light to import, honest about its names."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import rangecast

HEAVY = {"numpy", "numba", "pyarrow", "pyspark", "matplotlib", "pandas"}


OF_THE_SERVER = {"AsyncClient", "Client", "ServerError"}
"""Names that need an extra."""


def test_all_names_are_listed_sorted_and_there():
    assert rangecast.__all__ == sorted(rangecast.__all__)
    for name in rangecast.__all__:
        if name in OF_THE_SERVER and find_spec("httpx") is None:  # make lower-bounds
            with pytest.raises(rangecast.UsageError, match=r"pip install 'rangecast\[server\]'"):
                getattr(rangecast, name)
            continue
        assert getattr(rangecast, name).__name__ == name
    assert dir(rangecast) == rangecast.__all__


def loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print('\\n'.join(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in run.stdout.split()}


def test_importing_rangecast_is_light():
    heavy = {
        "numpy",
        "numba",
        "pyarrow",
        "pyspark",
        "matplotlib",
        "typer",
        "rich",
        "pandas",
    }
    assert not heavy & loaded_by("import rangecast")


def test_the_command_line_loads_only_what_help_needs():
    assert not HEAVY & loaded_by("import rangecast.cli.main")


@pytest.mark.process
def test_verify_reads_the_results_of_streams_without_spark():
    names = "rangecast.cli.commands.events.verify, rangecast.store.commits"
    assert "pyspark" not in loaded_by(f"import {names}")


def test_the_version_is_that_of_the_installed_package():
    assert rangecast.__version__ == version("rangecast")


@pytest.mark.parametrize("extra", ["gpu", "gpu13"])
def test_versions_for_gpus_are_locked(extra):
    root = Path(__file__).parents[2]
    pins = dict(line.split("==") for line in (root / "gpu.lock").read_text().split())
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    for text in project["optional-dependencies"][extra]:
        requirement = Requirement(text)
        assert requirement.specifier.contains(pins[requirement.name])


def listed_names(docstring: str) -> set[str]:
    """Return the names that a docstring explains: a column of names, then a column of texts."""
    rows = re.findall(r"^(\w+(?:, \w+)*) {3,}\S", docstring, re.MULTILINE)
    return {name for row in rows for name in row.split(", ")}


def test_docstrings_explain_parameters_under_their_names():
    """A list of which nothing is a parameter is one of values."""
    wrong = []
    for path in sorted(Path(rangecast.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                listed = listed_names(ast.get_docstring(node) or "")
                parameters = {n.arg for n in ast.walk(node.args) if isinstance(n, ast.arg)}
                if listed & parameters:
                    wrong += [f"{path}:{node.lineno}: {name}" for name in listed - parameters]
    assert not wrong
