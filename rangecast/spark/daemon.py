"""Daemon process that loads the kernels and from which Spark forks its Python workers.

A worker is replaced after a minute of idleness. numba is slow to load; here that is done once,
before the first fork, and every worker has it from its first row on. Spark collects garbage after
each task: objects loaded here are left out, as they live as long as the worker.
"""

from __future__ import annotations

import gc
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pyarrow  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark import daemon

import rangecast.match.choose
import rangecast.spark.steps.prepared
import rangecast.spark.steps.query  # noqa: F401
from rangecast.kernels.progress import report_compiling

if __name__ == "__main__":
    report_compiling()
    gc.collect()
    gc.freeze()
    daemon.manager()
