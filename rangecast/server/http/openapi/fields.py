"""Schemas shared by other schemas: positions, events, filters, ids, and tracks."""

from __future__ import annotations

from rangecast.server.http.openapi.types import Schema, flag, listed, mapped, record, text, whole
from rangecast.track.transitions import KINDS

POSITION = text("A position in the log, epoch:seq.", examples=["1f0c5a2e:42"])
EVENT = mapped({}, "An event: a value per attribute, and optionally an `id`.")
FILTER = text("A filter: docs/reference/filters.md.", examples=["price < 20 and sector = 'tech'"])
ID: Schema = {"type": ["string", "integer"], "description": "An id, as it was given."}
TRACK = record(
    "How the objects of a space are tracked: docs/how-to/tracks.md.",
    {
        "lateness": text("How late an event may arrive after the newest one.", examples=["30 s"]),
        "after": text("An object without events for longer than this exits everywhere."),
        "inside": flag("Whether every event of a stay is also a transition."),
        "accuracy": {
            "type": ["string", "object"],
            "description": "The column with the accuracy of places; or an object from attribute "
            "to column.",
        },
        "clock": text("How far time lags behind the server's clock when there are no events."),
    },
    key=text("The column that identifies the object of an event."),
    time=text("The timestamp that orders the events of an object."),
)
TRANSITION_FIELDS = {
    "transition": text(enum=[*KINDS, "reminder", "digest"]),
    "key": ID,
    "at": text("When a transition took effect, in event time."),
    "since": text("When the stay began."),
    "reason": text(enum=["event", "time", "silent", "edited", "removed"]),
    "id": text("Id of a transition; the same on redelivery."),
}
POLICY = record(
    "Delivery policy for the transitions of a subscription, or of a consumer: "
    "docs/explanation/tracks.md.",
    {
        "deduplicate": text("Repeats within this time are dropped.", examples=["10 min"]),
        "throttle": {
            "type": "array",
            "description": "Maximum number of transitions per object in this time.",
            "examples": [[3, "1 h"]],
        },
        "renotify": text("A stay is reported again after this time.", examples=["2 h"]),
        "digest": record(
            "Deliver transitions together.",
            {
                "at": text("Local time of day.", examples=["08:00"]),
                "days": text("Weekdays.", examples=["Mon-Fri"]),
                "zone": text("IANA time zone.", examples=["Europe/Berlin"]),
                "count": whole("Number of transitions, instead of a time.", minimum=1),
            },
        ),
    },
)
RULE = record(
    "Rule for transitions, which the consumer gets instead of matches.",
    {
        "on": listed(text(enum=[*KINDS]), "Kinds of transitions to report."),
        "for": text("How long an enter or exit must last to be confirmed.", examples=["30 s"]),
        "dwell": text("Length of a stay after which it is reported.", examples=["10 min"]),
        "first": text(enum=["enter", "silent", "inside"]),
        "margin": mapped({}, "How much wider ranges are for an object that is inside."),
        "until": FILTER,
        "cross": text(
            "Maximum time between two events whose path is examined.", examples=["5 min"]
        ),
        "max_speed": {
            "type": ["string", "number"],
            "description": "Maximum speed of a path: '200 km/h'.",
        },
        "schedule": text("Local hours.", examples=["Mon-Fri 08:00-18:00 Europe/Berlin"]),
        "policy": POLICY,
    },
)
