"""Schemas of boards, interests and objects, by public name."""

from __future__ import annotations

from rangecast.server.http.openapi.fields import (
    FILTER,
    ID,
    POSITION,
)
from rangecast.server.http.openapi.types import (
    Schema,
    closed,
    flag,
    listed,
    maybe,
    number,
    page,
    record,
    ref,
    text,
    whole,
)

_BOUNDS = {
    "position_lo": maybe(number()),
    "position_hi": maybe(number()),
    "filter": FILTER,
}

BOARD_SCHEMAS: dict[str, Schema] = {
    "NewBoard": closed(
        record(
            "Request for a board.",
            {
                "space": text("The space whose attributes objects have; none: a position."),
                "upper_bound_attribute": text("Of two attributes, the one without lower bounds."),
                "descending": flag("The highest value ranks first."),
            },
            k=whole("Number of objects per list.", minimum=1),
        )
    ),
    "Board": record(
        "A board.",
        name=text(),
        k=whole(),
        attribute=maybe(listed(ref("Attribute"))),
        upper_bound_attribute=maybe(text()),
        descending=flag(),
        objects=whole(),
        interests=whole(),
    ),
    "Boards": record("The boards.", items=listed(ref("Board"))),
    "NewInterest": closed(
        record(
            "Request for an interest: bounds of the position, or a filter.",
            {
                **_BOUNDS,
                "id": {**ID, "description": "The id in the path; an integer, if the id is one."},
                "k": whole(minimum=0),
                "consumer": text(),
            },
        )
    ),
    "BulkInterest": closed(
        record(
            "A row of a bulk request for interests.",
            {**_BOUNDS, "k": whole(minimum=0), "consumer": text()},
            id=ID,
        )
    ),
    "RankedObject": record(
        "An object of a list.",
        object=ID,
        value=number(),
        position={
            "type": ["number", "object"],
            "description": "A number, or, with a space, the values by attribute.",
        },
    ),
    "Interest": record(
        "An interest.",
        {**_BOUNDS, "best": listed(ref("RankedObject"), "Its current list.")},
        id=ID,
        k=maybe(whole()),
        consumer=maybe(text()),
        position=POSITION,
    ),
    "Interests": page(ref("Interest"), "A page of interests, by id."),
    "BoardObject": record(
        "An object of a board: its position, or the attributes of its space, and its value.",
        {"position": number()},
        id=ID,
        value=maybe(number("null removes the object.")),
    ),
    "BoardObjects": page(ref("BoardObject"), "A page of objects, by id."),
    "RankedObjects": record("The best objects.", items=listed(ref("RankedObject"))),
}
