"""The members of Engine and Board, and those of their clients."""

from __future__ import annotations

import inspect

from rangecast import AsyncClient, Client, Engine
from rangecast.client import AsyncClientBoard, ClientBoard
from rangecast.notify import Board
from tests.support.parity import space

# ---- the members of the classes

NOT_REMOTE = {
    "index": "the server chooses its structures",
    "rank_index": "the server chooses its structures",
    "space": "the argument `space` names it; `put_space` makes it",
    "match_points": "coordinates are numbers of words in one process",
    "rank_points": "coordinates are numbers of words in one process",
    "boxes": "a set may be larger than a client's memory; `select` has some",
    "id_type": "a server may have ids of both kinds",
    "memory": "`explain` and `status` have it",
    "rebuild_count": "the server's own",
    "wait_for_rebuild": "the server's own",
    "save": "the server keeps it",
    "open": "a client is opened by a URL",
    "device": "the server chooses its devices",
    "match_ids": "answers of a server are lists",
    "count_points": "coordinates are numbers of words in one process",
}
"""Public members of `Engine` that make no sense remotely, each with the reason."""
NOT_REMOTE_OPTIONS = {
    "threads": "the server's own",
    "span": "a request has plain events",
    "score_factors": "a function can't be sent",
    "factor_bounds": "goes with `score_factors`",
    "probabilities": "a request has plain events",
    "max_per_second": "a consumer has it",
    "time_attribute": "goes with `max_per_second`",
}
"""Options of methods that make no sense remotely, or have another name there."""
SPOKEN = {
    "__len__": "size",
    "__contains__": "contains",
    "__iter__": "__aiter__",
    "__getitem__": "get",
}
"""Members that aren't awaited in `Client`, and their names in `AsyncClient`."""


def test_what_an_engine_has_a_client_has() -> None:
    public = {name for name in dir(Engine(space())) if name[0] != "_"} | SPOKEN.keys()
    assert NOT_REMOTE.keys() <= public
    for kind in (Client, AsyncClient):
        names = {
            SPOKEN.get(name, name) if kind is AsyncClient else name
            for name in public - {*NOT_REMOTE}
        }
        missing = {name for name in names if not hasattr(kind, name)}
        assert not missing, f"{kind.__name__} lacks {missing}: add it, or say why in NOT_REMOTE"
    options = set()
    for name in public - NOT_REMOTE.keys() - SPOKEN.keys():
        own = inspect.signature(getattr(Engine, name)).parameters
        for kind in (Client, AsyncClient):
            there = inspect.signature(getattr(kind, name)).parameters
            lacks = {one for one in own if one != "self"} - there.keys()
            assert lacks <= NOT_REMOTE_OPTIONS.keys(), (kind.__name__, name, lacks)
            shared = [one for one in own if one in there]
            assert [there[one].default for one in shared] == [own[one].default for one in shared]
            options |= lacks
    assert options == NOT_REMOTE_OPTIONS.keys()
    same = {name for name in dir(Client) if name[0] != "_"} - {"watch"}
    assert {name for name in dir(AsyncClient) if name[0] != "_"} - {*SPOKEN.values()} == same


BOARD_NOT_REMOTE = {
    **dict.fromkeys(
        ("k", "space", "upper_bound_attribute", "descending"), "`put_board` has it, GET returns it"
    ),
    **dict.fromkeys(
        ("algorithm", "epsilon", "sketch", "plan", "work", "memory", "engine"), "the server's"
    ),
    **dict.fromkeys(
        ("seq", "affected_interests"), "consumers get lists, not messages with numbers"
    ),
    **dict.fromkeys(("bounds", "region"), "coordinates are of one process"),
    **dict.fromkeys(
        ("lists", "mismatches", "list_table"), "to check a board; `board[id]` has a list"
    ),
    "quiet_range": "it holds until the next change, which may be on its way",
    **dict.fromkeys(("objects", "table"), "a board may be larger than a client's memory; `best`"),
    **dict.fromkeys(("save", "open"), "the server keeps it"),
}
"""Public members of `Board` that make no sense remotely, each with the reason."""


def test_what_a_board_has_a_board_of_a_client_has() -> None:
    public = {name for name in dir(Board(1)) if name[0] != "_"} | SPOKEN.keys()
    public -= {"index", "line", "tree"}  # structures inside
    assert BOARD_NOT_REMOTE.keys() <= public
    for kind in (ClientBoard, AsyncClientBoard):
        names = public - BOARD_NOT_REMOTE.keys()
        if kind is AsyncClientBoard:
            names = {SPOKEN.get(name, name) for name in names}
        assert not {name for name in names if not hasattr(kind, name)}
