"""Run benchmarks: all of them, or those named; hunts and single tables are apart."""

import sys

from benchmarks import spark_growth, spark_size, spark_stream, tracks_server
from benchmarks.frame import main

ABOUT = {
    "foundation": "start-up, filters, memory of reading",
    "match": "matching beside the peers, live sets, updates",
    "calls": "one event at a time, as programs call: match, match_ids, rank, memory",
    "threads": "batches on several threads, and what these cost",
    "memory": "bytes per subscription: structures, live sets, a server",
    "shapes": "polygons, circles and corridors beside shapely",
    "text": "literals beside ahocorasick_rs and hyperscan, selection, long lists, equality",
    "rules": "event rules beside event-ruler, saved searches beside Lucene Monitor",
    "tracks": "transitions beside a state table in PostgreSQL, costs of rules, memory",
    "rank": "the k best beside the peers, score updates",
    "cover": "covering under every index, live sets of a million, whole sets",
    "spark": "matching on Spark beside its own joins and DuckDB",
    "merge": "insertion, removal, matching by summary, the Hilbert curve",
    "notify": "range top-k messages beside unicast over the same indexes",
    "route": "one broker at size, control traffic by strategy, large networks",
    "server": "durable events and edits over HTTP, delivery, replay, restart",
    "choice": "whether the choice of a structure is right, on shapes not seen before",
}

HUNTS = {
    "spark-growth": spark_growth.main,
    "spark-size": spark_size.main,
    "spark-stream": spark_stream.main,
    "tracks-server": tracks_server.main,
}

if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in HUNTS:
        HUNTS[sys.argv[1]](sys.argv[2:])
    else:
        main(ABOUT)
