"""The example of eleven brokers: every strategy delivers the same, and some say less."""

import runpy

from rangecast.overlay.interest.strategies import STRATEGIES
from tests import ROOT

EXAMPLE = ROOT / "examples" / "eleven_brokers.py"
DELIVERED = [
    "broker 4 delivers e1 to Ada",
    "broker 7 delivers e1 to Bob",
    "broker 4 delivers e2 to Ada",
    "broker 10 delivers e4 to Cleo",
    "broker 7 delivers e5 to Bob",
]


def test_every_strategy_delivers_the_same_and_covering_says_less(capsys):
    main = runpy.run_path(str(EXAMPLE))["main"]
    said = {}
    for strategy in STRATEGIES:
        said[strategy] = main(strategy)
        lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
        assert sorted(line for line in lines if "delivers" in line) == sorted(DELIVERED)
        assert any("6 -> 2: event e1" in line for line in lines)
        assert not any("3 -> 9: event e1" in line for line in lines)
    assert said["covering"] < said["none"]
