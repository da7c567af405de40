"""Run benchmark suites: all of them, or those named."""

from __future__ import annotations

import argparse
import importlib

SUITES = {
    "foundation": "start-up, filters, memory of reading",
    "match": "matching beside the peers, live sets, updates",
    "rank": "the k best beside the peers, score updates",
    "cover": "covering under every index, live sets of a million, whole sets",
    "spark": "matching on Spark beside its own joins and DuckDB",
    "merge": "insertion, removal, matching by summary, the Hilbert curve",
    "notify": "range top-k messages beside unicast over the same indexes",
    "choice": "whether the choice of a structure is right, on shapes not seen before",
}


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("suites", nargs="*", help="; ".join(f"{k}: {v}" for k, v in SUITES.items()))
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    arguments = parser.parse_args()
    for name in arguments.suites:
        if name not in SUITES:
            parser.error(f"no suite {name!r}; there are: {', '.join(SUITES)}")
    for name in arguments.suites or SUITES:
        importlib.import_module(f"benchmarks.{name}").run(quick=arguments.quick)


if __name__ == "__main__":
    main()
