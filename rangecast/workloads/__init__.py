"""Seeded generators of the workloads that the papers, the tests and the examples use.

`generate("market", seed=1, events=100)` makes one, `WORKLOADS` says what there is and what can
be set. docs/WORKLOADS.md lists them all.
"""

from rangecast.workloads import covering, market, mics, ranked, sparse, topk, vcr  # noqa: F401
from rangecast.workloads.base import WORKLOADS, Generator, Parameter, Workload, generate

__all__ = ["WORKLOADS", "Generator", "Parameter", "Workload", "generate"]
