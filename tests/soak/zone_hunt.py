"""Many histories of networks by zones: `python -m tests.soak.zone_hunt --seeds 1000 [--first 0]`.

Each seed is played in 2, 3 and 4 dimensions. What fails is named; one seed alone shows why.
"""

from __future__ import annotations

import argparse
from collections import Counter

from tests.overlay.test_zone_network import Story


def play(seed: int, attributes: int, upper: bool) -> Counter[str]:
    """Play a history to its end and return what happened in it."""
    algorithm = "dense" if seed % 4 == 3 else "sparse"
    story = Story(seed, attributes, by_load=seed % 2 == 1, upper=upper, algorithm=algorithm)
    story.grow(7)
    for _ in range(40):
        story.step()
    story.network.run_until_quiet()
    story.network.check()
    return story.network.counts


def main() -> None:
    """Play all seeds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    happened: Counter[str] = Counter()
    failed = 0
    for seed in range(given.first, given.first + given.seeds):
        for attributes, upper in ((1, False), (2, True), (2, False)):
            try:
                happened += play(seed, attributes, upper)
            except AssertionError as error:
                failed += 1
                print(f"seed {seed}, {2 * attributes - upper} dimensions: {error}", flush=True)
                if given.seeds == 1:
                    raise
    print(f"{3 * given.seeds} histories, {failed} failed: {dict(happened)}")
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
