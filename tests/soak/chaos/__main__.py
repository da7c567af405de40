"""Faults as a method: a real server, harmed while clients work, against a model of its promises.

    python -m tests.soak.chaos --seconds 180 --seed 7
    python -m tests.soak.chaos --plants

A run plays episodes. Each starts new servers, lets writers and readers work through rounds of
faults (kills, power cuts, full and slow disks, clocks that jump, ...), and compares files of the
servers with what clients were answered and got. When a promise is broken, the plan is made smaller
as far as it still breaks it, and the history of what it is about is printed.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.soak.chaos.plan import Plan
from tests.soak.chaos.plants import PLANTS
from tests.soak.chaos.runner import ALL, Broken, Run


def main() -> None:
    """Run."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak.chaos",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, help="a random one if left out")
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--faults", default="", help=f"some of: {', '.join(sorted(ALL))}")
    parser.add_argument("--episode", type=int, default=1, help="the episode to begin with")
    parser.add_argument("--plan", default="", help="play one plan: the file that a failure names")
    parser.add_argument("--plant", default="", help=f"a bug to plant: {', '.join(PLANTS)}")
    parser.add_argument("--plants", nargs="*", help="plant each bug, or these, and find it")
    parser.add_argument("--shrink", type=float, default=120, help="seconds to shrink a failure")
    parser.add_argument("--keep", action="store_true", help="keep the data folders of a failure")
    given = parser.parse_args()
    faults = set(given.faults.split(",")) if given.faults else ALL
    for names, known in (
        (faults, ALL),
        ({given.plant, *(given.plants or [])} - {""}, PLANTS.keys()),
    ):
        if wrong := names - known:
            parser.error(f"unknown: {', '.join(sorted(wrong))}; known: {', '.join(sorted(known))}")
    seed = random.randrange(10**6) if given.seed is None else given.seed
    sys.setrecursionlimit(50_000)  # hostile events nest deep
    if given.plants is not None:
        sys.exit(find_plants(given.plants or [*PLANTS], seed, given.seconds))
    print(f"seed {seed}", flush=True)
    run = Run(given.plant, say)
    broken = None
    try:
        if given.plan:
            broken = run.play(Plan.from_json(Path(given.plan).read_text()))
        else:
            broken = run.until_broken(seed, faults, given.seconds, first=given.episode)
        if broken is not None:
            say(f"broken: {broken.error.promise}")
            broken = run.shrunk(broken, given.shrink)
            report(broken, seed, given.plant, keep=given.keep)
        summary(run.numbers)
    finally:
        run.close(keep=given.keep and broken is not None)
    sys.exit(broken is not None)


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


def report(broken: Broken, seed: int, plant: str, *, keep: bool) -> None:
    """Print what is broken, its history, and how to see it again."""
    error = broken.error
    print(f"\nBROKEN PROMISE: {error.promise}\n{error.detail}\n")
    print("what touches it, in the order of its clients:")
    for line in broken.lines:
        print(f"  {line}")
    print("\nthe rounds that it takes:")
    for one in broken.plan.rounds:
        print(f"  {one.fault} {one.with_}, {one.ops} ops per writer, then {one.end}")
    plan = Path(tempfile.gettempdir()) / f"chaos-{seed}.json"
    plan.write_text(broken.plan.to_json())
    again = f"python -m tests.soak.chaos --plan {plan}{f' --plant {plant}' if plant else ''}"
    print(f"\nseed {broken.plan.seed}; again: {again}")
    if keep:
        print(f"kept: {broken.folder}")


def summary(numbers: Counter[str]) -> None:
    """Print all numbers of a run."""
    print()
    for name, count in sorted(numbers.items()):
        print(f"{name:28} {count:>9,}")


def find_plants(names: list[str], seed: int, seconds: float) -> int:
    """Plant each bug, and look for it; return how many weren't found."""
    missed = 0
    print(f"{'planted':20} {'found':>7}  promise")
    for name in names:
        plant, began = PLANTS[name], time.monotonic()
        run = Run(name, lambda line: None)
        try:
            broken = run.until_broken(seed, set(plant.faults.split(",")), seconds)
        finally:
            run.close()
        took = time.monotonic() - began
        is_found = broken is not None and broken.error.promise in plant.promises.split()
        missed += not is_found
        said = "NOT FOUND" if broken is None else broken.error.promise
        if broken is not None and not is_found:
            said += f": another promise\n{broken.error.detail}"
        where = "" if broken is None else f", seed {broken.plan.seed}"
        print(f"{name:20} {took:5.0f} s  {said}{where}\n{'':30}{plant.says}", flush=True)
    return missed


if __name__ == "__main__":
    main()
