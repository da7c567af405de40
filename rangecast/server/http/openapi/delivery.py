"""OpenAPI operations of consumers, messages and push delivery."""

from __future__ import annotations

from rangecast.server.http.openapi.operation import EVENT, PAGE, POSITION, Body, Operation
from rangecast.server.http.openapi.types import number, ref, text, whole

_CONSUMER = {
    "name": "alerts",
    "space": "market",
    "position": POSITION,
    "lag": 0,
    "listeners": 0,
    "on_gap": "report",
    "max_per_event": 0,
    "max_per_second": 0,
    "delivery": {},
}

OPERATIONS: dict[tuple[str, str], Operation] = {
    ("put", "/v1/consumers/{name}"): Operation(
        "putConsumer",
        "consumers",
        "Create a consumer, or change its options",
        Body(ref("Consumer"), _CONSUMER),
        (Body(ref("NewConsumer"), {"space": "market", "start_at": "start"}),),
    ),
    ("get", "/v1/consumers"): Operation(
        "listConsumers",
        "consumers",
        "List the consumers",
        Body(ref("Consumers"), {"items": [_CONSUMER]}),
    ),
    ("get", "/v1/consumers/{name}"): Operation(
        "getConsumer", "consumers", "Return a consumer", Body(ref("Consumer"), _CONSUMER)
    ),
    ("get", "/v1/consumers/{name}/messages"): Operation(
        "pullMessages",
        "consumers",
        "Return the messages after the acknowledged position",
        Body(
            ref("Messages"),
            {
                "items": [
                    {
                        "position": POSITION,
                        "seq": 42,
                        "event": EVENT,
                        "subscriptions": ["cheap"],
                    }
                ],
                "position": POSITION,
            },
        ),
        query={
            "wait": number("Seconds to wait for messages.", minimum=0, maximum=60, example=0),
            "limit": whole("Maximum number of messages.", minimum=1, maximum=5000),
        },
    ),
    ("post", "/v1/consumers/{name}/ack"): Operation(
        "acknowledge",
        "consumers",
        "Acknowledge all messages up to a position",
        Body(ref("Position"), {"position": POSITION}),
        (Body(ref("Position"), {"position": "start"}),),
    ),
    ("post", "/v1/consumers/{name}/seek"): Operation(
        "seekConsumer",
        "consumers",
        "Move a consumer to a position",
        Body(ref("Consumer"), _CONSUMER),
        (Body(ref("Seek"), {"position": "start"}),),
    ),
    ("get", "/v1/consumers/{name}/stream"): Operation(
        "streamMessages",
        "consumers",
        "Follow a consumer as server-sent events",
        Body(
            {"type": "string"},
            f"id: {POSITION}\ndata: {{...}}\n\n",
            "text/event-stream",
        ),
        query={"ticket": text("Replaces the token, for browsers.")},
        headers={"Last-Event-ID": text("The position to continue after.")},
    ),
    ("delete", "/v1/consumers/{name}"): Operation(
        "deleteConsumer",
        "consumers",
        "Delete a consumer, with its subscriptions",
        Body(ref("MadeSpace"), {"name": "alerts", "position": POSITION}),
    ),
    ("get", "/v1/consumers/{name}/dead-letters"): Operation(
        "listDeadLetters",
        "push",
        "List dead letters",
        Body(
            ref("DeadLetters"),
            {
                "items": [
                    {
                        "position": POSITION,
                        "reason": "503",
                        "at": 1794918600.0,
                        "is_kept": True,
                    }
                ],
                "next": None,
                "count": 1,
            },
        ),
        query={"after": text("A position.", example=""), "limit": PAGE["limit"]},
        path={"name": "hook"},
    ),
    ("post", "/v1/consumers/{name}/dead-letters:redrive"): Operation(
        "redriveDeadLetters",
        "push",
        "Retry up to 100 dead letters",
        Body(ref("Redriven"), {"delivered": [], "gone": [], "left": 0, "error": None}),
        path={"name": "hook"},
    ),
    ("post", "/v1/consumers/{name}/secret:rotate"): Operation(
        "rotateSecret",
        "push",
        "Rotate the secret of a webhook",
        Body(ref("Secret"), {"secret": "whsec_..."}),
        path={"name": "hook"},
    ),
    ("post", "/v1/consumers/{name}:test"): Operation(
        "testDelivery",
        "push",
        "Deliver a test message to a webhook",
        Body(ref("TestResult"), {"delivered": True, "status": 204, "error": None}),
        path={"name": "hook"},
    ),
}
