"""A rejected request changes nothing; an accepted one does what its answer says."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from rangecast.errors import FilterError
from rangecast.model.filters import many
from rangecast.model.filters.filter import Filter
from rangecast.model.space import Space
from rangecast.server.log.base import MemoryLog
from rangecast.server.pipeline.futures import result_of
from rangecast.server.service import Service
from rangecast.server.state.edits import PutSpace, PutSubscription
from rangecast.server.state.registry import Registry
from rangecast.server.state.space_index import bounds_of
from tests.support.server.serving import Client, T, run, serving

WORDS = Space.from_toml("""
attribute = [{ name = "price", type = "number" }, { name = "who", type = "string" }]
""")
KNOWN = "who = 'ann' or who = 'bob'"


def words(registry: Registry) -> list[str]:
    return registry.space(T, "w").space.vocabularies["who"]


async def told(client: Client, path: str, body: Any, **headers: str) -> int:
    """Send a body; return the status."""
    method = "POST" if "bulk" in path else "PUT"
    answer = await client._http.request(method, f"/v1/{path}", json=body, headers=headers)
    return answer.status_code


def followed(service: Service) -> list[str]:
    """Return the words of a server that has carried out the same log."""
    other = Service(None)
    for unit in service.core.log.read(0, 1 << 30):
        other.core.follow(unit)
    other.close()
    return words(other.core.registry)


@pytest.mark.parametrize("count", [1, many._FEW + 1])
def test_a_rejected_subscription_adds_no_word(
    tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither one, nor many that are read by compiled code."""
    monkeypatch.setattr(many, "_WORTH_COMPILING", many._FEW)
    one, bulk = "spaces/w/subscriptions/x", "spaces/w/subscriptions:bulk"
    good = [{"id": f"g{n}", "filter": "who = 'eve' and price < 9"} for n in range(count)]
    bad, never = {"filter": "who = 'mal' and price <"}, {"filter": "who = 'mal' and who = 'joe'"}
    unknown = {"id": "u", "filter": "who = 'mal'", "colour": "red"}

    async def work() -> None:
        async with serving(tmp_path) as service:
            client = Client(service)
            await result_of(service.core.edit(PutSpace(T, "w", WORDS.definition())))
            await result_of(service.core.edit(PutSubscription(T, "x", "w", KNOWN)))
            await client("PUT", "tenants/default", {"subscriptions": 1000, "filter_boxes": 3})
            before = words(service.core.registry)
            last = service.core.log.last
            assert before == ["ann", "bob"]
            for status, path, body, headers in [
                (422, one, bad, {}),
                (422, one, never, {}),
                (412, one, {"filter": "who = 'mal'"}, {"If-Match": '"999"'}),
                (412, one, {"filter": "who = 'mal'"}, {"If-None-Match": "*"}),
                (404, one, {"filter": "who = 'mal'", "consumer": "nobody"}, {}),
                (403, one, {"filter": "who in ('ann', 'mal') or price in (1, 2, 3)"}, {}),
                (412, bulk, [*good, {"id": "x", "filter": "true"}], {"If-None-Match": "*"}),
                (422, f"{bulk}?strict=true", [bad, *good], {}),
                (422, bulk, [bad, never, unknown], {}),
            ]:
                assert await told(client, path, body, **headers) == status, (path, body)
                assert words(service.core.registry) == before
            await client("PUT", "tenants/default", {"subscriptions": 1})
            assert await told(client, f"{one}2", {"filter": "who = 'mal'"}) == 403
            assert words(service.core.registry) == before == followed(service)
            assert service.core.log.last == last + 1
            # of many, those that are used have words, and the rejected ones have none
            await client("PUT", "tenants/default", {})
            assert await told(client, bulk, [bad, never, *good, unknown]) == 200
            assert words(service.core.registry) == ["ann", "bob", "eve"] == followed(service)
            assert (await client("GET", "spaces/w/subscriptions"))["count"] == 1 + count
            service.core.snapshot()
        again = Service(tmp_path)
        assert again.core.snapshot_seq > 0
        assert words(again.core.registry) == ["ann", "bob", "eve"]
        again.close()

    run(work)


def test_words_that_come_together_are_told_apart() -> None:
    """Requests that were read before any of them was written would give words one number."""
    names = [f"w{n}" for n in range(12)]
    wanted = {f"is-{one}": [one] for one in names}
    wanted |= {f"{a}-{b}": [a, b] for a, b in itertools.pairwise(names[::-1])}

    async def work() -> None:
        async with serving() as service:
            client = Client(service)
            await result_of(service.core.edit(PutSpace(T, "w", WORDS.definition())))
            edits = [
                PutSubscription(T, one, "w", f"who in ({', '.join(map(repr, some))})")
                for one, some in wanted.items()
            ]
            edits += [PutSubscription(T, f"not-{one}", "w", f"who != '{one}'") for one in names]
            asked = [service.core.edit(one) for one in edits]
            rows = [{"id": "bulk", "filter": "who in ('w3', 'w20', 'w5')"}, {"id": "bad"}]
            both = asyncio.gather(
                *map(result_of, asked), client("POST", "spaces/w/subscriptions:bulk", rows)
            )
            await both
            entry = service.core.registry.space(T, "w")
            events = [*names, "w20", "stranger"]
            lines = [json.dumps({"who": one}).encode() for one in events]
            found = await result_of(service.core.publish(entry, lines, wants_matches=True))
            for event, ids in zip(events, found.matches or [], strict=True):
                expected = {one for one, some in wanted.items() if event in some}
                expected |= {f"not-{one}" for one in names if one != event}
                expected |= {"bulk"} if event in ("w3", "w20", "w5") else set()
                assert set(ids) == expected, event
            assert isinstance(service.core.log, MemoryLog)
            assert sorted(words(service.core.registry)) == sorted([*names, "w20"])

    run(work)


def test_what_was_accepted_is_read_again_though_its_words_lie_apart() -> None:
    """As one box it was accepted; words that came in another order make it thousands."""
    names = [f"'w{number}'" for number in range(4_000)]
    every_second = f"who in ({', '.join(names[::2])})"
    apart = Space.from_toml(WORDS.to_toml())
    Filter.parse(f"who in ({', '.join(names)})", apart)
    with pytest.raises(FilterError, match="boxes"):
        Filter.parse(every_second, apart)
    _, _, sizes = bounds_of([every_second], apart)
    assert sizes.tolist() == [2_000]
