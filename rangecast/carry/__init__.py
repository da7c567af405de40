"""Rules of other systems as subscriptions, and back; one module per system.

Each has `read`, which gives subscriptions, the space that they need and what couldn't be carried
over, and `write`, the way back. A rule is carried over exactly, or refused with the reason.
"""

from rangecast.carry import eventbridge, geojson, percolator, postgres, sns, vespa
from rangecast.carry.carried import Carried, Refusal
from rangecast.carry.flat import flat
from rangecast.carry.spoken import Exported

__all__ = [
    "Carried",
    "Exported",
    "Refusal",
    "eventbridge",
    "flat",
    "geojson",
    "percolator",
    "postgres",
    "sns",
    "vespa",
]
