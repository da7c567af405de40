"""A server process does without pandas, and gives freed memory back."""

from __future__ import annotations

import subprocess
import sys

import pytest

_SCRIPT = """
import sys
from rangecast.server.memory import prepare_memory, release_memory
prepare_memory()
import rangecast.server.process
import pyarrow as pa
assert pa.array([1, 2]).to_numpy().sum() == 3 and pa.default_memory_pool().backend_name == "system"
assert "pandas" not in sys.modules
release_memory()
import pandas
"""


@pytest.mark.process
def test_a_server_does_without_pandas_which_others_may_still_import() -> None:
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
