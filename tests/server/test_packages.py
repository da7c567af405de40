"""Missing packages of the server are named before anything starts."""

import re
import tomllib
from pathlib import Path

import pytest

from rangecast import server
from rangecast.errors import UsageError

EXTRA = tomllib.loads(Path("pyproject.toml").read_text())["project"]["optional-dependencies"]
OPTIONAL = {"uvloop"}
"""Used where it is installed."""


def test_every_package_of_the_extra_is_looked_for():
    names = {re.split("[<>=;]", one)[0].strip().replace("-", "_") for one in EXTRA["server"]}
    assert set(server._NEEDED) == names - OPTIONAL


@pytest.mark.parametrize("name", server._NEEDED)
def test_a_missing_one_is_named(monkeypatch, name):
    found = server.find_spec
    monkeypatch.setattr(server, "find_spec", lambda one: None if one == name else found(one))
    with pytest.raises(UsageError, match=rf"this needs {name}.*\n.*rangecast\[server\]"):
        server.need_server()
