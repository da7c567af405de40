"""Schemas of requests and responses, by public name."""

from __future__ import annotations

from rangecast.server.http.auth import SCOPES
from rangecast.server.http.openapi.board_schemas import BOARD_SCHEMAS
from rangecast.server.http.openapi.fields import (
    EVENT,
    FILTER,
    ID,
    POLICY,
    POSITION,
    RULE,
    TRACK,
    TRANSITION_FIELDS,
)
from rangecast.server.http.openapi.types import (
    Schema,
    closed,
    flag,
    listed,
    mapped,
    maybe,
    number,
    page,
    record,
    ref,
    text,
    whole,
)
from rangecast.server.state.quotas import LIMITS

_IGNORE = flag("Whether the event may have fields that are not attributes.")
_BOXES = flag("Whether the response has all alternatives of filters.")
_MATCHES = (
    "With `wait=matches`: the subscriptions of each event. `null` if there are more than a "
    "million, or if the request is a repetition."
)
_REJECTED = listed(ref("RejectedRow"), "Rejected rows; the others were accepted.")

SCHEMAS: dict[str, Schema] = {
    "Problem": record(
        "A problem (RFC 9457).",
        {
            "reason": text("Of a filter: the error, in one line."),
            "hint": text("Of a filter: how to correct it."),
            "span": listed(whole(), "Of a filter: start and end of the error."),
            "earliest": whole("Of a dropped part of the log: the first seq that is known."),
        },
        type=text(),
        title=text("The name of the status."),
        status=whole(),
        code=text(
            "The kind of error, for a program: `unknown_id`, `duplicate_id`, `filter`, "
            "`invalid_value`, `usage`, or the name of the status.",
            examples=["filter", "unknown_id", "not_found"],
        ),
        detail=text("The given and the expected value, with a hint."),
    ),
    "RejectedRow": record(
        "A rejected row.",
        {"code": text("The kind of error, as in a problem.")},
        row=whole("Its number, counted from 0.", minimum=0),
        reason=text(),
    ),
    "Health": record("Health.", status=text("`ok`, or the reason.")),
    "Links": record("Links.", docs=text(), openapi=text(), status=text()),
    "Status": record(
        "Server status.",
        epoch=text("The history that positions belong to."),
        durability=text(),
        spaces=whole(),
        boards=whole(),
        subscriptions=whole(),
        consumers=whole(),
        limits=mapped(whole()),
    ),
    "NewToken": closed(
        record(
            "Request for a token.",
            {
                "scopes": listed(text(enum=list(SCOPES))),
                "tenant": text(),
                "ttl": maybe(number("Seconds until it expires.", exclusiveMinimum=0)),
            },
            label=text("Purpose of the token.", maxLength=200),
        )
    ),
    "MadeToken": record("A token; it isn't shown again.", token=text(), id=text()),
    "Token": record(
        "A token, without its secret.",
        id=text(),
        label=text(),
        tenant=text(),
        scopes=listed(text()),
        expires=maybe(number("Seconds since 1970.")),
    ),
    "Tokens": record("The tokens.", items=listed(ref("Token"))),
    "Deleted": record("A deleted token.", id=text()),
    "Limits": closed(
        {
            "type": "object",
            "description": "Limits of a tenant; missing ones are unlimited.",
            "properties": {name: whole(about, minimum=0) for name, about in LIMITS.items()},
        }
    ),
    "Tenant": record(
        "A tenant, with its limits.",
        {"subscriptions": whole(), "consumers": whole(), "retained_bytes": whole()},
        name=text(),
        limits=ref("Limits"),
    ),
    "Tenants": record("The tenants.", items=listed(ref("Tenant"))),
    "Ticket": record("A ticket for one WebSocket or stream.", ticket=text(), seconds=number()),
    "Attribute": record(
        "An attribute: docs/how-to/spaces.md.",
        name=text(),
        type=text(examples=["number", "integer", "string", "category", "timestamp", "boolean"]),
    ),
    "SpaceDefinition": record(
        "The attributes that events have.",
        {"track": TRACK},
        attribute=listed(ref("Attribute"), minItems=1),
    ),
    "Space": record(
        "A space.",
        {"track": TRACK, "tracked": mapped(whole(), "Objects that are tracked, in numbers.")},
        name=text(),
        subscriptions=whole(),
        attribute=listed(ref("Attribute")),
    ),
    "Spaces": record("The spaces.", items=listed(ref("Space"))),
    "MadeSpace": record("A space or a board that was created.", name=text(), position=POSITION),
    "NewSubscription": closed(
        record(
            "Request for a subscription.",
            {
                "id": {**ID, "description": "The id in the path; an integer, if the id is one."},
                "score": number("For ranking.", default=0),
                "weights": mapped(number(minimum=0), "Weights of attributes, for ranking."),
                "consumer": text("The consumer that gets its matches."),
                "ttl": maybe(number("Seconds after which it expires.", exclusiveMinimum=0)),
                "track": maybe(RULE),
            },
            filter=FILTER,
        )
    ),
    "SubscriptionPatch": closed(
        record(
            "Changed fields of a subscription; the others stay.",
            {
                "id": {**ID, "description": "The id in the path; an integer, if the id is one."},
                "filter": FILTER,
                "score": maybe(number("For ranking.")),
                "weights": mapped(number(minimum=0), "Weights of attributes; others stay."),
                "consumer": text("The consumer that gets its matches."),
                "ttl": maybe(number("Seconds after which it expires.", exclusiveMinimum=0)),
                "track": maybe(RULE),
            },
        )
    ),
    "Ids": closed(record("Ids of subscriptions.", ids=listed(ID, maxItems=10_000))),
    "SelectedSubscriptions": record(
        "Subscriptions in the order of the ids, each with its place in the order of `arrival`.",
        items=listed(ref("Subscription")),
    ),
    "DeletedSubscriptions": record(
        "Number of deleted subscriptions.", deleted=whole(), position=maybe(POSITION)
    ),
    "Transitions": record(
        "The newest transitions of a space, the newest first.",
        items=listed(
            record(
                "A transition.", position=POSITION, subscriptions=listed(ID), **TRANSITION_FIELDS
            )
        ),
    ),
    "SetExplanation": record("The structures of a set, in words.", text=text()),
    "BulkSubscription": closed(
        record(
            "A row of a bulk request. Instead of a filter it may have `<attribute>_lo` and "
            "`<attribute>_hi`.",
            {
                "score": number(default=0),
                "weights": mapped(number(minimum=0)),
                "consumer": text(),
                "ttl": maybe(number(exclusiveMinimum=0)),
                "track": maybe(RULE),
            },
            id=ID,
            filter=FILTER,
        )
    ),
    "Edited": record(
        "A subscription or an interest that was created, replaced or removed.",
        {
            "propagated": flag("With `wait=propagated`: whether all linked servers know of it."),
            "created": flag("Whether the subscription is new."),
        },
        id=ID,
        position=POSITION,
    ),
    "Subscription": record(
        "A subscription.",
        {
            "propagated": flag("With `wait=propagated`: whether all linked servers know of it."),
            "arrival": whole("Its place in the order of arrival, if requested."),
            "track": RULE,
        },
        id=ID,
        filter=FILTER,
        score=number(),
        weights=mapped(number()),
        consumer=maybe(text()),
        expires=maybe(number("Seconds since 1970.")),
        position=POSITION,
    ),
    "Subscriptions": page(ref("Subscription"), "A page of subscriptions, in order of arrival."),
    "BulkResult": record(
        "Result of a bulk request.",
        {"inserted": whole("Subscriptions that are new.")},
        accepted=whole(),
        rejected=_REJECTED,
        position=maybe(POSITION),
    ),
    "Filter": record("A filter that isn't saved.", filter=FILTER),
    "FilterPreview": record(
        "Boxes of a filter, and its matches among past events.",
        filter=text(),
        boxes=listed(text(), "Its boxes."),
        looked_at=whole("Past events that were examined."),
        matched=whole(),
        by_minute=listed(
            listed(whole()), "Matches per minute: seconds since 1970, and the number of matches."
        ),
        examples=listed(ref("LoggedEvent")),
    ),
    "LoggedEvent": record("An event of the log.", position=POSITION, event=EVENT),
    "CoverQuestion": record(
        "A filter, or the id of a subscription.", {"filter": FILTER, "subscription": ID}
    ),
    "Cover": record(
        "A covering subscription, if there is one.",
        covered_by=maybe(ID),
        looked_at=whole(),
        subscriptions=whole(),
    ),
    "Events": {
        "anyOf": [EVENT, listed(EVENT, maxItems=10_000)],
        "description": "One event, or a list of at most 10,000.",
    },
    "PublishResult": record(
        "Result of publishing events.",
        {
            "matches": maybe(listed(listed(ID), _MATCHES)),
            "repeated": flag(
                "The Idempotency-Key was used before; this is the response from then."
            ),
            "skipped": whole("Events skipped as duplicates."),
        },
        accepted=whole(),
        first=maybe(POSITION),
        last=maybe(POSITION),
        rejected=_REJECTED,
        durability=text("Durability of the response; with `fsync`, events are on disk."),
    ),
    "Matches": record(
        "The subscriptions that match each event.",
        matches=listed(listed(ID)),
        rejected=_REJECTED,
    ),
    "Counts": record(
        "The number of subscriptions that match each event.",
        counts=listed(whole()),
        rejected=_REJECTED,
    ),
    "Ranking": record(
        "The top subscriptions of each event.",
        best=listed(listed(record("", subscription=ID, score=number()))),
        rejected=_REJECTED,
    ),
    "EventAndSubscription": record(
        "An event and a subscription.",
        {"ignore_unknown": _IGNORE, "boxes": _BOXES},
        event=EVENT,
        subscription=ID,
    ),
    "OneEvent": record(
        "An event.",
        {
            "k": whole("Subscriptions that nearly match.", minimum=1, maximum=100, default=10),
            "ignore_unknown": _IGNORE,
            "boxes": _BOXES,
        },
        event=EVENT,
    ),
    "Explanation": record(
        "Why a subscription matches an event, or doesn't.",
        {
            "boxes": listed(listed(mapped({})), "All alternatives, attribute by attribute."),
            "nearest": whole("Index of the alternative that matches, or comes closest."),
        },
        subscription=ID,
        matches=flag(),
        verdict=text(),
        alternatives=whole(),
        lines=listed(mapped({}), "Comparison per attribute."),
    ),
    "Candidates": record(
        "The subscriptions that match an event, and those that nearly do.",
        count=whole(),
        matches=listed(ID),
        nearest=listed(ref("Explanation")),
        looked_at=whole(),
        subscriptions=whole(),
    ),
    "BoxesOnAxes": record(
        "Boxes on two attributes.",
        axes=listed(mapped({})),
        boxes=listed(mapped({})),
        bounded=whole(),
        looked_at=whole(),
        subscriptions=whole(),
    ),
    "Shapes": record(
        "Shapes of subscriptions, as GeoJSON.",
        type=text(enum=["FeatureCollection"]),
        features=listed(ref("ShapeFeature")),
        place=maybe(mapped({}, "The place: its name and type, and the columns of x and y.")),
        next=maybe(text("Value of `after` for the next page; null: this is the last.")),
        tiles=maybe(text("The `--map-tiles` of the server.")),
    ),
    "ShapeFeature": record(
        "One shape of a subscription.",
        type=text(enum=["Feature"]),
        properties=record(
            "The subscription it belongs to.",
            subscription=ID,
            negated=flag("Whether the area is outside of the shape."),
            radius=maybe(number("Radius of a circle or a corridor; on the earth, in metres.")),
        ),
        geometry=mapped({}, "A polygon, the centre of a circle, or the line of a corridor."),
    ),
    "NewConsumer": closed(
        record(
            "Request for a consumer, of a space or of a board.",
            {
                "space": text("The space whose matches it gets."),
                "board": text("The board whose lists it gets."),
                "start_at": text("`start`, `now` or a position.", default="now"),
                "on_gap": text(
                    "When events were removed before they were read: report the gap, or stop.",
                    enum=["report", "stop"],
                    default="report",
                ),
                "max_per_event": whole(
                    "Maximum subscriptions per message, highest scores first; 0: all.", minimum=0
                ),
                "max_per_second": whole(
                    "Maximum messages per second, highest scores first; 0: all.", minimum=0
                ),
                "policy": POLICY,
                "delivery": mapped({}, "Push delivery: webhook, NATS or Kafka."),
            },
        )
    ),
    "Consumer": record(
        "A consumer.",
        {
            "space": text(),
            "board": text(),
            "state": text("State of the push delivery: running, failing or stopped."),
            "error": maybe(text()),
            "dead_letters": whole("Number of dead letters."),
            "policy": POLICY,
        },
        name=text(),
        position=POSITION,
        lag=whole("Events and edits of the log after its acknowledged position."),
        listeners=whole(),
        on_gap=text(),
        max_per_event=whole(),
        max_per_second=whole(),
        delivery=mapped({}),
    ),
    "Consumers": record("The consumers.", items=listed(ref("Consumer"))),
    "Message": record(
        "An event and the subscriptions that match it; a transition of an object; of a board, its "
        "lists that changed.",
        {
            "event": maybe(EVENT),
            "subscriptions": listed(ID),
            **TRANSITION_FIELDS,
            "window": text("Of a digest: its end in local time, or its number."),
            "transitions": listed(
                mapped({}), "The transitions of a digest, each with its `subscription`."
            ),
            "dropped": whole("Messages of its second that `max_per_second` dropped."),
            "board": text(),
            "lists": listed(record("", interest=ID, best=listed(ref("RankedObject")))),
        },
        position=POSITION,
    ),
    "Messages": record(
        "Messages, and the position to acknowledge once they have arrived.",
        {"gap": mapped(text(), "Events removed from the log before they were read.")},
        items=listed(ref("Message")),
        position=POSITION,
    ),
    "Position": closed(record("A position.", position=POSITION)),
    "Seek": closed(
        record(
            "Target of a seek.",
            {
                "subscriptions": text(
                    "Subscriptions to match with: the historical or the current ones.",
                    enum=["historical", "current"],
                    default="historical",
                )
            },
            position=POSITION,
        )
    ),
    "DeadLetters": page(
        record("", position=POSITION, reason=text(), at=number(), is_kept=flag()),
        "A page of dead letters.",
    ),
    "Redriven": record(
        "Result of a redrive.",
        delivered=listed(POSITION),
        gone=listed(POSITION),
        left=whole(),
        error=maybe(text()),
    ),
    "Secret": record("The secret of a webhook; it isn't shown again.", secret=text()),
    "TestResult": record(
        "Result of a test.", delivered=flag(), status=maybe(whole()), error=maybe(text())
    ),
    **BOARD_SCHEMAS,
}
