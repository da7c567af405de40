"""The server is killed while clients write and read; `make server-kills` does so for longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.server_kills import Hunt


@pytest.mark.process
def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    Hunt(tmp_path, seed=11).run(kills=9)
