"""OpenAPI operations of spaces, subscriptions, events and explanations."""

from __future__ import annotations

from rangecast.server.http.openapi.operation import (
    ARROW,
    BINARY,
    CONDITION,
    CSV,
    EVENT,
    LINES,
    PAGE,
    PARQUET,
    POSITION,
    STRICT,
    Body,
    Operation,
)
from rangecast.server.http.openapi.types import flag, listed, ref, text, whole

_SPACE = {"attribute": [{"name": "price", "type": "number"}, {"name": "sector", "type": "string"}]}
_SUBSCRIPTION = {
    "id": "cheap",
    "filter": "price < 20",
    "score": 0.0,
    "weights": {},
    "consumer": "alerts",
    "expires": None,
    "position": POSITION,
}
_WHY = {
    "subscription": "cheap",
    "matches": True,
    "verdict": "cheap matches: price < 20 holds at 12.5.",
    "alternatives": 1,
    "lines": [
        {
            "attribute": "price",
            "wanted": "price < 20",
            "value": "12.5",
            "holds": True,
            "mentioned": True,
            "distance": "",
        }
    ],
}
_COLUMNS = (
    "The columns of a file of subscriptions: `id`, then `filter` or `<attribute>_lo` and "
    "`<attribute>_hi`; `score`, `weight_<attribute>`, `consumer` and `ttl`. At most 100,000 rows "
    "and 64 MiB of values."
)
_BULK_BODIES = (
    Body(
        listed(ref("BulkSubscription")),
        [{"id": "dear", "filter": "price > 90", "score": 1.5}],
    ),
    Body(
        text("One subscription per line."),
        '{"id": "dear", "filter": "price > 90"}\n',
        LINES,
    ),
    Body(text(_COLUMNS), "id,price_lo,price_hi\ndear,90,\n", CSV),
    Body(BINARY | {"description": f"A Parquet file. {_COLUMNS}"}, media=PARQUET),
    Body(BINARY | {"description": f"An Arrow IPC stream. {_COLUMNS}"}, media=ARROW),
)
_CLOUD_EVENT = {
    "specversion": "1.0",
    "id": "1",
    "source": "/quotes",
    "type": "quote",
    "data": EVENT,
}
_EVENT_BODIES = (
    Body(ref("Events"), EVENT),
    Body(
        text("One event per line."),
        '{"price": 12.5, "sector": "tech"}\n{"price": 7.0}\n',
        LINES,
    ),
    Body(
        {"type": "object", "description": "A CloudEvent whose `data` is the event."},
        _CLOUD_EVENT,
        "application/cloudevents+json",
    ),
    Body(
        listed({"type": "object"}, "CloudEvents."),
        [_CLOUD_EVENT],
        "application/cloudevents-batch+json",
    ),
    Body(BINARY | {"description": "An Arrow IPC stream with a column per attribute."}, media=ARROW),
)
_AS_OF = {
    "as_of": text(
        "Answer with the subscriptions as they were at a seq, a position or a time: a timestamp "
        "with a zone.",
        examples=["42", "1f0c5a2e:42", "2026-01-31T09:30:00Z"],
    )
}
_UNKNOWN = {"ignore_unknown": flag("Fields that are not attributes are kept, not rejected.")}
_WAIT = {
    "wait": text(
        "`propagated`: respond once all linked servers know of it.", enum=["", "propagated"]
    ),
}
_CREATE = {"create_consumer": flag("Create missing consumers.")}

OPERATIONS: dict[tuple[str, str], Operation] = {
    ("put", "/v1/spaces/{space}"): Operation(
        "putSpace",
        "spaces",
        "Create a space, or add attributes to it",
        Body(ref("MadeSpace"), {"name": "market", "position": POSITION}),
        (
            Body(ref("SpaceDefinition"), _SPACE),
            Body(
                {"type": "string"},
                '[[attribute]]\nname = "price"\ntype = "number"\n\n'
                '[[attribute]]\nname = "sector"\ntype = "string"\n',
                "application/toml",
            ),
        ),
    ),
    ("get", "/v1/spaces"): Operation(
        "listSpaces",
        "spaces",
        "List the spaces",
        Body(ref("Spaces"), {"items": [{"name": "market", "subscriptions": 1, **_SPACE}]}),
    ),
    ("get", "/v1/spaces/{space}"): Operation(
        "getSpace",
        "spaces",
        "Return a space",
        Body(ref("Space"), {"name": "market", "subscriptions": 1, **_SPACE}),
        headers={"Accept": text("`application/toml`: as TOML.")},
    ),
    ("put", "/v1/spaces/{space}/subscriptions/{name}"): Operation(
        "putSubscription",
        "subscriptions",
        "Create or replace a subscription",
        Body(ref("Edited"), {"id": "cheap", "position": POSITION, "created": True}),
        (Body(ref("NewSubscription"), {"filter": "price < 20", "consumer": "alerts"}),),
        query=_WAIT | _CREATE,
        headers=CONDITION,
        path={"name": "cheap"},
    ),
    ("patch", "/v1/spaces/{space}/subscriptions/{name}"): Operation(
        "patchSubscription",
        "subscriptions",
        "Change the given fields of a subscription",
        Body(ref("Edited"), {"id": "cheap", "position": POSITION, "created": False}),
        (Body(ref("SubscriptionPatch"), {"score": 1.5}),),
        headers={"If-Match": CONDITION["If-Match"]},
        path={"name": "cheap"},
    ),
    ("get", "/v1/spaces/{space}/subscriptions"): Operation(
        "listSubscriptions",
        "subscriptions",
        "List subscriptions in order of arrival, a page at a time",
        Body(ref("Subscriptions"), {"items": [_SUBSCRIPTION], "next": None, "count": 1}),
        query={
            **PAGE,
            "after": text("The `next` of the previous page.", example=""),
            "consumer": text("Only those of this consumer."),
            "contains": text("Only those with this text in their id or filter.", example=""),
        },
    ),
    ("get", "/v1/spaces/{space}/subscriptions/{name}"): Operation(
        "getSubscription",
        "subscriptions",
        "Return a subscription",
        Body(ref("Subscription"), _SUBSCRIPTION),
        query=_WAIT,
        path={"name": "cheap"},
    ),
    ("post", "/v1/spaces/{space}/subscriptions:bulk"): Operation(
        "putSubscriptions",
        "subscriptions",
        "Create or replace many subscriptions",
        Body(
            ref("BulkResult"),
            {"accepted": 1, "inserted": 1, "rejected": [], "position": POSITION},
        ),
        _BULK_BODIES,
        query=STRICT | {"consumer": text("Consumer of subscriptions that name none.")} | _CREATE,
        headers={
            "If-Match": text("`*`: all of them must exist.", enum=["*"]),
            "If-None-Match": text("`*`: none of them may exist.", enum=["*"]),
        },
    ),
    ("patch", "/v1/spaces/{space}/subscriptions:bulk"): Operation(
        "patchSubscriptions",
        "subscriptions",
        "Change the given fields of many subscriptions",
        Body(
            ref("BulkResult"),
            {"accepted": 1, "inserted": 0, "rejected": [], "position": POSITION},
        ),
        _BULK_BODIES,
        query=STRICT | {"consumer": text("Consumer of subscriptions that name none.")},
    ),
    ("post", "/v1/spaces/{space}/subscriptions:select"): Operation(
        "selectSubscriptions",
        "subscriptions",
        "Return the subscriptions of a list of ids",
        Body(ref("SelectedSubscriptions"), {"items": [{**_SUBSCRIPTION, "arrival": 0}]}),
        (Body(ref("Ids"), {"ids": ["cheap"]}),),
    ),
    ("post", "/v1/spaces/{space}/subscriptions:delete"): Operation(
        "deleteSubscriptions",
        "subscriptions",
        "Delete the subscriptions of a list of ids, all or none",
        Body(ref("DeletedSubscriptions"), {"deleted": 1, "position": POSITION}),
        (Body(ref("Ids"), {"ids": ["dear"]}),),
    ),
    ("delete", "/v1/spaces/{space}/subscriptions/{name}"): Operation(
        "deleteSubscription",
        "subscriptions",
        "Delete a subscription",
        Body(ref("Edited"), {"id": "cheap", "position": POSITION}),
        headers={"If-Match": CONDITION["If-Match"]},
        path={"name": "cheap"},
    ),
    ("post", "/v1/spaces/{space}/filters:preview"): Operation(
        "previewFilter",
        "explain",
        "Preview a filter: its boxes and its past matches",
        Body(
            ref("FilterPreview"),
            {
                "filter": "price < 20",
                "boxes": ["price < 20"],
                "looked_at": 1,
                "matched": 1,
                "by_minute": [[1794918600, 1]],
                "examples": [{"position": POSITION, "event": EVENT}],
            },
        ),
        (Body(ref("Filter"), {"filter": "price < 20"}),),
    ),
    ("post", "/v1/spaces/{space}/subscriptions:find-covering"): Operation(
        "findCovering",
        "explain",
        "Find a subscription that covers a filter or another one",
        Body(ref("Cover"), {"covered_by": "cheap", "looked_at": 1, "subscriptions": 1}),
        (Body(ref("CoverQuestion"), {"filter": "price < 5"}),),
    ),
    ("post", "/v1/spaces/{space}/events"): Operation(
        "publish",
        "events",
        "Publish events",
        Body(
            ref("PublishResult"),
            {
                "accepted": 1,
                "first": POSITION,
                "last": POSITION,
                "rejected": [],
                "durability": "fsync",
            },
        ),
        _EVENT_BODIES,
        query={
            "wait": text("`matches`: the response contains them.", enum=["", "durable", "matches"]),
            **STRICT,
            "dedup": text(
                "`id`: skip events with an id that was already published.", enum=["", "id"]
            ),
            **_UNKNOWN,
        },
        headers={
            "Idempotency-Key": text("A request is executed once per key.", maxLength=200),
            "Content-Encoding": text(enum=["gzip", "identity"]),
        },
    ),
    ("get", "/v1/spaces/{space}/events"): Operation(
        "readEvents",
        "events",
        "Return the events of the log after a position",
        Body(
            {"type": "string"},
            f'{{"position":"{POSITION}","event":{{"price":12.5,"sector":"tech"}}}}\n',
            LINES,
        ),
        query={
            "after": text("A position; empty: from the first event.", example=""),
            "limit": whole("Maximum number of events.", minimum=1),
        },
    ),
    ("post", "/v1/spaces/{space}/events:match"): Operation(
        "matchEvents",
        "events",
        "Return the subscriptions that match events",
        Body(ref("Matches"), {"matches": [["cheap"]], "rejected": []}),
        _EVENT_BODIES,
        query=_UNKNOWN | _AS_OF,
    ),
    ("post", "/v1/spaces/{space}/events:count"): Operation(
        "countMatches",
        "events",
        "Return the number of subscriptions that match events",
        Body(ref("Counts"), {"counts": [1], "rejected": []}),
        _EVENT_BODIES,
        query=_UNKNOWN | _AS_OF,
    ),
    ("post", "/v1/spaces/{space}/events:rank"): Operation(
        "rankEvents",
        "events",
        "Return the top k subscriptions of events",
        Body(
            ref("Ranking"),
            {"best": [[{"subscription": "cheap", "score": 0.0}]], "rejected": []},
        ),
        _EVENT_BODIES,
        query={
            "k": whole("Maximum length of the list.", minimum=1, maximum=10_000),
            "relaxed": flag("Include partial matches, ranked by their weights."),
            "combine": text(
                "How a relaxed ranking combines the weights.",
                enum=["sum", "product", "min", "max"],
            ),
            "tolerance": listed(
                text(examples=["price=5"]),
                "In a relaxed ranking, the distance below which a value outside its range counts "
                "in part, as ATTRIBUTE=NUMBER; seconds for timestamps.",
            ),
            **_UNKNOWN,
            **_AS_OF,
        },
    ),
    ("post", "/v1/spaces/{space}/why"): Operation(
        "explain",
        "explain",
        "Explain why a subscription matches an event, or doesn't",
        Body(ref("Explanation"), _WHY),
        (Body(ref("EventAndSubscription"), {"event": EVENT, "subscription": "cheap"}),),
    ),
    ("post", "/v1/spaces/{space}/why-not"): Operation(
        "explainEvent",
        "explain",
        "Return the subscriptions that match an event or nearly do",
        Body(
            ref("Candidates"),
            {
                "count": 1,
                "matches": ["cheap"],
                "nearest": [],
                "looked_at": 1,
                "subscriptions": 1,
            },
        ),
        (Body(ref("OneEvent"), {"event": EVENT}),),
    ),
    ("get", "/v1/spaces/{space}/transitions"): Operation(
        "listTransitions",
        "explain",
        "List the newest transitions of tracked objects",
        Body(
            ref("Transitions"),
            {
                "items": [
                    {
                        "position": "1f0c5a2e:42",
                        "subscriptions": ["depot"],
                        "transition": "enter",
                        "key": "t1",
                        "at": "2026-01-31T09:00:00Z",
                        "since": "2026-01-31T09:00:00Z",
                        "reason": "event",
                        "id": "2b8f1c0d9e7a46538f6e5d4c3b2a1908",
                    }
                ]
            },
        ),
        (),
        {"limit": whole("Maximum number of transitions.", minimum=1)},
    ),
    ("get", "/v1/spaces/{space}/explain"): Operation(
        "explainSet",
        "explain",
        "Return the structures of the live set",
        Body(ref("SetExplanation"), {"text": "<Engine: 1 subscription over ...>, 1,024 bytes"}),
    ),
    ("get", "/v1/spaces/{space}/boxes"): Operation(
        "drawBoxes",
        "explain",
        "Return the boxes of subscriptions on two attributes",
        Body(
            ref("BoxesOnAxes"),
            {
                "axes": [
                    {"name": "price", "type": "number", "labels": None},
                    {"name": "sector", "type": "string", "labels": None},
                ],
                "boxes": [{"subscription": "cheap", "x": [None, 19.99], "y": [None, None]}],
                "bounded": 1,
                "looked_at": 1,
                "subscriptions": 1,
            },
        ),
        query={
            "x": text(
                "An attribute; by default, the one that most subscriptions bound.", example="price"
            ),
            "y": text("Another one.", example="sector"),
            "limit": whole("Maximum number of boxes.", minimum=1, maximum=2000),
        },
    ),
    ("get", "/v1/spaces/{space}/shapes"): Operation(
        "listShapes",
        "explain",
        "Return the shapes of subscriptions as GeoJSON",
        Body(
            ref("Shapes"),
            {
                "type": "FeatureCollection",
                "features": [],
                "place": None,
                "next": None,
                "tiles": None,
            },
            media="application/geo+json",
        ),
        query={
            "place": text("A location or point of the space; by default its first.", example=""),
            "after": text("The `next` of the previous page.", example=""),
            "limit": whole("Maximum number of subscriptions.", minimum=1, maximum=10_000),
        },
    ),
}
