"""Seeded generators of the workloads that the papers, the tests and the examples use.

`generate("market", seed=1, events=100)` makes one; `WORKLOADS` lists the generators and their
parameters. docs/reference/workloads.md lists them all.
"""

from rangecast.workloads import (  # noqa: F401
    covering,
    crowded_rectangles,
    equal_boxes,
    market,
    ranked,
    selective,
    sparse,
    topk,
    wide,
)
from rangecast.workloads.base import WORKLOADS, Generator, Workload, generate

__all__ = ["WORKLOADS", "Generator", "Workload", "generate"]
