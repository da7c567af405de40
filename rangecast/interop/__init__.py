"""Rules of other systems as subscriptions, and back; one module per system.

Each has `read`, which gives subscriptions, the space that they need and what couldn't be carried
over, and `write`, the way back. A rule is carried over exactly, or refused with the reason.
"""

from rangecast.interop import eventbridge, geojson, percolator, postgres, sns, vespa
from rangecast.interop.export import Exported
from rangecast.interop.flattening import flatten
from rangecast.interop.result import Carried, Refusal

__all__ = [
    "Carried",
    "Exported",
    "Refusal",
    "eventbridge",
    "flatten",
    "geojson",
    "percolator",
    "postgres",
    "sns",
    "vespa",
]
