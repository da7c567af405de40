"""Schemas shared by other schemas: positions, events, filters, ids, and tracks."""

from __future__ import annotations

from rangecast.server.http.openapi.types import Schema, flag, listed, mapped, record, text, whole
from rangecast.track.transitions import KINDS

POSITION = text("A position in the log, epoch:seq.", examples=["1f0c5a2e:42"])
EVENT = mapped({}, "An event: a value for each attribute, and an `id` if it has one.")
FILTER = text("A filter: docs/reference/filters.md.", examples=["price < 20 and sector = 'tech'"])
ID: Schema = {"type": ["string", "integer"], "description": "An id, as it was given."}
TRACK = record(
    "How the objects of a space are tracked: docs/how-to/tracks.md.",
    {
        "lateness": text("How far behind the newest event an event may come.", examples=["30 s"]),
        "after": text("An object that is silent for longer has left everything."),
        "inside": flag("Every event of a stay is a transition, too."),
        "accuracy": {
            "type": ["string", "object"],
            "description": "The column with the accuracy of places; or attribute to column.",
        },
        "clock": text("How far behind the server's clock time passes without events."),
    },
    key=text("The column that names the object of an event."),
    time=text("The timestamp that orders the events of an object."),
)
TRANSITION_FIELDS = {
    "transition": text(enum=[*KINDS, "reminder", "digest"]),
    "key": ID,
    "at": text("When a transition took effect, in the time of events."),
    "since": text("When the stay began."),
    "reason": text(enum=["event", "time", "silent", "edited", "removed"]),
    "id": text("Of a transition: the same whenever it is sent again."),
}
POLICY = record(
    "What is delivered of the transitions of a subscription, or of a consumer: "
    "docs/explanation/tracks.md.",
    {
        "deduplicate": text("Repeats within this time are dropped.", examples=["10 min"]),
        "throttle": {
            "type": "array",
            "description": "At most this number of transitions of an object in this time.",
            "examples": [[3, "1 h"]],
        },
        "renotify": text("A stay is reported again after this time.", examples=["2 h"]),
        "digest": record(
            "Transitions are delivered together.",
            {
                "at": text("Local time of a day.", examples=["08:00"]),
                "days": text("Weekdays.", examples=["Mon-Fri"]),
                "zone": text("IANA time zone.", examples=["Europe/Berlin"]),
                "count": whole("Number of transitions, instead of a time.", minimum=1),
            },
        ),
    },
)
RULE = record(
    "Rule of a subscription's transitions, which its consumer gets instead of matches.",
    {
        "on": listed(text(enum=[*KINDS]), "Those that are wanted."),
        "for": text("How long an end of a stay takes to be confirmed.", examples=["30 s"]),
        "dwell": text("How long a stay lasts until it is reported.", examples=["10 min"]),
        "first": text(enum=["enter", "silent", "inside"]),
        "margin": mapped({}, "By how much ranges are wider for an object that is inside."),
        "until": FILTER,
        "cross": text("Longest time between events whose path is looked at.", examples=["5 min"]),
        "max_speed": {"type": ["string", "number"], "description": "Of paths: '200 km/h'."},
        "schedule": text("Local hours.", examples=["Mon-Fri 08:00-18:00 Europe/Berlin"]),
        "policy": POLICY,
    },
)
