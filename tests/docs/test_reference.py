"""The generated references: every public name, request and command, with its examples."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest

from docs import make_api, make_cli, make_http, make_reference
from tests.tools.golden import public_names


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return make_http.openapi()


def test_every_public_name_has_an_entry():
    page = make_api.page()
    for module in make_api.MODULES:
        for name in importlib.import_module(module).__all__:
            assert page.count(f"### {module}.{name}\n") == 1
    public = {line.rpartition(".")[0] for line in public_names().splitlines()}
    assert set(make_api.MODULES) | {"rangecast.workloads"} == public


def test_every_request_has_an_entry_with_its_examples(document):
    page = make_http.page(document)
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert page.count(f"### `{method.upper()} {path}` {{") == 1
            entry = page.split(f"### `{method.upper()} {path}` {{")[1].split("\n### ")[0]
            assert operation["description"] in entry
            for parameter in operation["parameters"]:
                assert f"| `{parameter['name']}` | {parameter['in']} |" in entry
            for body in operation.get("requestBody", {}).get("content", {}).values():
                example = body.get("example", "")
                shown = example if isinstance(example, str) else json.dumps(example, indent=2)
                assert shown.rstrip() in entry
    for schema in document["components"]["schemas"]:
        assert f"### {schema} {{" in page


def test_every_command_has_an_entry_with_its_options_and_examples():
    page = make_cli.page()
    listed = [context.command_path for _, context in make_cli.commands()]
    assert len(set(listed)) == len(listed)
    assert {"rangecast match", "rangecast log verify", "rangecast generate market"} <= set(listed)
    for command, context in list(make_cli.commands())[1:]:
        entry = page.split(f"# {context.command_path}\n")[1].split("\n## ")[0]
        for parameter in command.params:
            if record := parameter.get_help_record(context):
                assert f"| `{record[0]}` |" in entry
        for line in (command.help or "").partition("Examples:\n")[2].splitlines():
            assert line.strip() in entry


def test_the_pages_are_written_into_a_folder(tmp_path):
    make_reference.main(tmp_path / "reference")
    written = {path.name: path.read_text() for path in (tmp_path / "reference").iterdir()}
    assert {name: text[:2] for name, text in written.items()} == dict.fromkeys(
        ["api.md", "http.md", "cli.md"], "# "
    )
