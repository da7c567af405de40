"""Servers in a line are cut and killed; `make link-kills` does so with five, for longer."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.soak.link_kills import SMALL, Net


@pytest.mark.process
def test_what_was_settled_before_an_event_gets_it_whatever_is_cut_and_killed(
    tmp_path: Path,
) -> None:
    net = Net(tmp_path, 5, SMALL)

    def cut() -> str:
        net.proxies[0].cut()
        time.sleep(0.5)
        net.proxies[0].heal()
        return "cut"

    def killed() -> str:
        middle = net.servers["b"]
        net.kill(middle)
        time.sleep(0.2)
        net.start(middle)
        return "killed"

    net.run([cut, killed], 0.6)
