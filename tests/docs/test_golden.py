"""The interfaces are those of the golden files; a change is made on purpose, and seen in review."""

import pytest

from tests import GOLDEN
from tests.tools.golden import INTERFACES


@pytest.mark.parametrize("name", INTERFACES)
def test_the_interface_is_that_of_the_golden_file(name):
    hint = "hint: read the difference; if it is meant, run python -m tests.tools.golden"
    assert INTERFACES[name]() == (GOLDEN / name).read_text(), hint
