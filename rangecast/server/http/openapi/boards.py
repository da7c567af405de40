"""OpenAPI operations of boards."""

from __future__ import annotations

from rangecast.server.http.openapi.operation import (
    CONDITION,
    LINES,
    PAGE,
    POSITION,
    STRICT,
    Body,
    Operation,
)
from rangecast.server.http.openapi.types import flag, listed, number, ref, text, whole

_OBJECT = {"object": "f2", "value": 650.0, "position": 4.0}
_INTEREST = {
    "id": "near",
    "position_lo": 1.0,
    "position_hi": 5.0,
    "k": None,
    "consumer": "listed",
    "position": POSITION,
}
_BOARD = {
    "name": "flats",
    "k": 2,
    "attribute": None,
    "upper_bound_attribute": None,
    "descending": False,
    "objects": 2,
    "interests": 1,
}

OPERATIONS: dict[tuple[str, str], Operation] = {
    ("put", "/v1/boards/{board}"): Operation(
        "putBoard",
        "boards",
        "Create a board",
        Body(ref("MadeSpace"), {"name": "flats", "position": POSITION}),
        (Body(ref("NewBoard"), {"k": 2}),),
    ),
    ("get", "/v1/boards"): Operation(
        "listBoards", "boards", "List the boards", Body(ref("Boards"), {"items": [_BOARD]})
    ),
    ("get", "/v1/boards/{board}"): Operation(
        "getBoard", "boards", "Return a board", Body(ref("Board"), _BOARD)
    ),
    ("put", "/v1/boards/{board}/interests/{name}"): Operation(
        "putInterest",
        "boards",
        "Create or replace an interest",
        Body(ref("Edited"), {"id": "near", "position": POSITION}),
        (Body(ref("NewInterest"), {"position_lo": 1, "position_hi": 5}),),
        headers=CONDITION,
        path={"name": "near"},
    ),
    ("post", "/v1/boards/{board}/interests:bulk"): Operation(
        "putInterests",
        "boards",
        "Create or replace many interests",
        Body(
            ref("BulkResult"),
            {"accepted": 1, "inserted": 1, "rejected": [], "position": POSITION},
        ),
        (
            Body(listed(ref("BulkInterest")), [{"id": "far", "position_lo": 5, "position_hi": 50}]),
            Body({"type": "string"}, '{"id": "far", "position_lo": 5, "position_hi": 50}\n', LINES),
        ),
        query=STRICT,
        headers={
            "If-Match": text("`*`: all of them must exist.", enum=["*"]),
            "If-None-Match": text("`*`: none of them may exist.", enum=["*"]),
        },
    ),
    ("post", "/v1/boards/{board}/interests:delete"): Operation(
        "deleteInterests",
        "boards",
        "Delete the interests of a list of ids, all or none",
        Body(ref("DeletedSubscriptions"), {"deleted": 1, "position": POSITION}),
        (Body(ref("Ids"), {"ids": ["far"]}),),
    ),
    ("post", "/v1/boards/{board}/updates"): Operation(
        "updateObjects",
        "boards",
        "Add, change, move and remove objects",
        Body(
            ref("PublishResult"),
            {
                "accepted": 2,
                "first": POSITION,
                "last": "1f0c5a2e:43",
                "rejected": [],
                "durability": "fsync",
            },
        ),
        (
            Body(
                listed(ref("BoardObject"), maxItems=10_000),
                [
                    {"id": "f1", "position": 3, "value": 700},
                    {"id": "f2", "position": 4, "value": 650},
                ],
            ),
            Body({"type": "string"}, '{"id": "f1", "value": 690}\n', LINES),
        ),
        query={
            "batch": flag("Apply all changes at once; lists are compared before and after."),
            **STRICT,
            "only": text(
                "Require that all objects are new, or that all exist.", enum=["", "new", "existing"]
            ),
        },
    ),
    ("get", "/v1/boards/{board}/interests"): Operation(
        "listInterests",
        "boards",
        "List interests by id, a page at a time",
        Body(ref("Interests"), {"items": [_INTEREST], "next": None, "count": 1}),
        query=PAGE,
    ),
    ("get", "/v1/boards/{board}/interests/{name}"): Operation(
        "getInterest",
        "boards",
        "Return an interest with its list",
        Body(ref("Interest"), {**_INTEREST, "best": [_OBJECT]}),
        path={"name": "near"},
    ),
    ("get", "/v1/boards/{board}/best"): Operation(
        "rankObjects",
        "boards",
        "Return the top k objects of a range or a filter",
        Body(ref("RankedObjects"), {"items": [_OBJECT]}),
        query={
            "filter": text("Filter, for a board over a space."),
            "position_lo": number("Lower bound, for a board without a space.", example=1),
            "position_hi": number("Upper bound, for a board without a space.", example=5),
            "k": whole("Maximum length of the list.", minimum=1),
        },
    ),
    ("get", "/v1/boards/{board}/objects"): Operation(
        "listObjects",
        "boards",
        "List objects by id, a page at a time",
        Body(
            ref("BoardObjects"),
            {"items": [{"id": "f1", "position": 3.0, "value": 700.0}], "next": None, "count": 1},
        ),
        query=PAGE,
    ),
    ("delete", "/v1/boards/{board}/interests/{name}"): Operation(
        "deleteInterest",
        "boards",
        "Delete an interest",
        Body(ref("Edited"), {"id": "near", "position": POSITION}),
        headers={"If-Match": CONDITION["If-Match"]},
        path={"name": "near"},
    ),
    ("delete", "/v1/boards/{board}"): Operation(
        "deleteBoard",
        "boards",
        "Delete a board, with its objects and interests",
        Body(ref("MadeSpace"), {"name": "flats", "position": POSITION}),
    ),
}
