"""Daemon process that loads the kernels and from which Spark forks its Python workers.

A worker is replaced after a minute of idleness. numba is slow to load; here that is done once,
before the first fork, and every worker has it from its first row on.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pyarrow  # noqa: F401
from pyspark import daemon

import rangecast.match.choose
import rangecast.spark.steps.query  # noqa: F401

if __name__ == "__main__":
    daemon.manager()
