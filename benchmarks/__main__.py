"""Run benchmarks: all of them, or those named; `spark-size` is a command of its own."""

import sys

from benchmarks import spark_size
from benchmarks.frame import main

ABOUT = {
    "foundation": "start-up, filters, memory of reading",
    "match": "matching beside the peers, live sets, updates",
    "rank": "the k best beside the peers, score updates",
    "cover": "covering under every index, live sets of a million, whole sets",
    "spark": "matching on Spark beside its own joins and DuckDB",
    "merge": "insertion, removal, matching by summary, the Hilbert curve",
    "notify": "range top-k messages beside unicast over the same indexes",
    "choice": "whether the choice of a structure is right, on shapes not seen before",
}

if __name__ == "__main__":
    if sys.argv[1:2] == ["spark-size"]:
        spark_size.main(sys.argv[2:])
    else:
        main(ABOUT)
