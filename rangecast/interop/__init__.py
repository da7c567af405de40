"""Rules of other systems as subscriptions, and back; one module per system.

Each has `read`, which returns subscriptions, the space that they need and the rejected
rules, and `write`, the reverse (but for `geoparquet` and `tile38`). A rule is imported exactly, or
rejected with the reason.
"""

from rangecast.interop import (
    eventbridge,
    geojson,
    geoparquet,
    percolator,
    postgres,
    sns,
    tile38,
    vespa,
)
from rangecast.interop.export import ExportResult
from rangecast.interop.flattening import flatten
from rangecast.interop.result import ImportResult, Rejection

__all__ = [
    "ExportResult",
    "ImportResult",
    "Rejection",
    "eventbridge",
    "flatten",
    "geojson",
    "geoparquet",
    "percolator",
    "postgres",
    "sns",
    "tile38",
    "vespa",
]
