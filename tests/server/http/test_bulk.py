"""Subscriptions in bulk: together they become what each alone would have become."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from rangecast.model.filters import many
from rangecast.model.space import Space
from rangecast.server.http.app import make_app
from rangecast.server.pipeline.futures import result_of
from rangecast.server.service import Service
from rangecast.server.state.edits import DeleteSubscription, PutConsumer, PutSpace, PutSubscription
from rangecast.server.state.registry import Registry
from tests.support.server.serving import Client, T, run, serving

SPACE = Space.from_toml("""
attribute = [{ name = "price", type = "number" }, { name = "who", type = "string" }]
""")
PATH = "/v1/spaces/w/subscriptions:bulk"
WORDS = [f"w{number}" for number in range(30)]


class Wish(NamedTuple):
    """A subscription, and where it holds by plain comparisons."""

    lo: int
    hi: int
    who: list[str]
    score: float
    consumer: str

    @classmethod
    def any(cls, turn: random.Random) -> Wish:
        lo, who = turn.randrange(90), turn.sample(WORDS, turn.choice([0, 0, 1, 1, 2, 3]))
        return cls(
            lo, lo + turn.randrange(20), who, turn.choice([0.0, 2.5]), turn.choice(["", "c"])
        )

    @property
    def filter(self) -> str:
        words = ", ".join(f"'{one}'" for one in self.who)
        return f"price >= {self.lo} and price <= {self.hi}" + (
            f" and who in ({words})" * bool(words)
        )

    def holds(self, price: int, who: str) -> bool:
        return self.lo <= price <= self.hi and (not self.who or who in self.who)

    def row(self, name: str) -> dict[str, Any]:
        return {"id": name, "filter": self.filter, "score": self.score, "consumer": self.consumer}


def shown(registry: Registry) -> dict[str, tuple[str, float, str, int]]:
    found = {}
    for one in registry.space(T, "w").live.values():
        owner = registry.owner(one)
        name = "" if owner is None else owner.name
        found[one.id] = one.filter, one.score, name, one.born
    return found


@pytest.mark.parametrize("is_compiled", [False, True])
def test_bulk_and_single_edits_of_one_group(
    tmp_path: Path, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the order of the log they make what a plain dict holds: live, and after a restart."""
    if is_compiled:
        monkeypatch.setattr(many, "_WORTH_COMPILING", 0)
        monkeypatch.setattr(many, "_FEW", 0)
    turn = random.Random(3)
    expected: dict[str, tuple[int, Wish]] = {}

    async def bulk(http: httpx.AsyncClient, form: str) -> list[tuple[int, str, Wish | None]]:
        names = [f"s{turn.randrange(60)}" for _ in range(turn.randrange(1, 30))]
        if form != "twice":
            names = [*dict.fromkeys(names)]
        wishes = [Wish.any(turn) for _ in names]
        rows = [one.row(name) for name, one in zip(names, wishes, strict=True)]
        again = [at for at, name in enumerate(names) if name in names[:at]]
        if again:  # the first one of an id counts
            wishes = [one for at, one in enumerate(wishes) if at not in again]
            names = [*dict.fromkeys(names)]
        if form == "more":  # takes the way of rows that have more than usual
            rows[0] |= {"weights": {"price": 2}, "ttl": 10_000}
        if form == "bad":  # the words of rows that are rejected get no number
            rows.insert(0, {"id": "bad", "filter": "who = 'mal' and price <"})
            rows.append({"id": "bad", "filter": "who = 'mal'", "consumer": ["c"]})
        body = "\n".join(map(json.dumps, rows)) if form == "lines" else json.dumps(rows)
        answer = (await http.post(PATH, content=body)).json()
        assert answer["accepted"] == len(names)
        assert [one["row"] for one in answer["rejected"]] == (
            [0, len(names) + 1] if form == "bad" else again
        )
        first = int(answer["position"].partition(":")[2]) - len(names) + 1
        return [(first + at, *one) for at, one in enumerate(zip(names, wishes, strict=True))]

    async def single(service: Service, name: str, wish: Wish | None) -> list[Any]:
        edit: Any = DeleteSubscription(T, name, "w")
        if wish is not None:
            edit = PutSubscription(T, name, "w", wish.filter, wish.consumer, wish.score)
        return [(await result_of(service.core.edit(edit)), name, wish)]

    async def check(service: Service) -> None:
        assert shown(service.core.registry) == {
            name: (wish.filter, wish.score, wish.consumer, seq)
            for name, (seq, wish) in expected.items()
        }
        assert service.core.registry.counts[T] == len(expected)
        asked = [(turn.randrange(110), turn.choice([*WORDS, "stranger"])) for _ in range(40)]
        lines = [json.dumps({"price": price, "who": who}).encode() for price, who in asked]
        entry = service.core.registry.space(T, "w")
        found = await result_of(service.core.publish(entry, lines, wants_matches=True))
        assert [sorted(ids) for ids in found.matches or []] == [
            sorted(name for name, (_, wish) in expected.items() if wish.holds(*one))
            for one in asked
        ]

    async def work() -> None:
        async with serving(tmp_path) as service:
            await result_of(service.core.edit(PutSpace(T, "w", SPACE.definition())))
            await result_of(service.core.edit(PutConsumer(T, "c", "w")))
            transport = httpx.ASGITransport(make_app(service))
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
                for _ in range(8):
                    forms = [turn.choice(["plain", "lines", "twice", "more", "bad"]), "plain"]
                    gone = turn.sample([*expected], min(3, len(expected)))
                    # ids of their own: what goes may be put meanwhile, in an order nobody knows
                    some = [(f"t{turn.randrange(9)}", Wish.any(turn)) for _ in range(6)]
                    made = await asyncio.gather(
                        *(bulk(http, form) for form in forms),
                        *(single(service, *one) for one in some),
                    )
                    made += await asyncio.gather(*(single(service, one, None) for one in gone))
                    for seq, name, wish in sorted([one for part in made for one in part]):
                        if wish is None:
                            del expected[name]
                        else:
                            expected[name] = seq, wish
                    await check(service)
            vocabulary = service.core.registry.space(T, "w").space.vocabularies["who"]
            assert "mal" not in vocabulary
        async with serving(tmp_path) as service:  # from the log alone
            await check(service)
            service.core.snapshot()
        async with serving(tmp_path) as service:
            assert service.core.snapshot_seq > 0
            await check(service)

    run(work)


def test_a_consumer_that_is_no_text_is_rejected() -> None:
    """It stopped the server: it is no key of a dict."""

    async def work() -> None:
        async with serving() as service:
            client = Client(service)
            row = {"id": "x", "filter": "price < 5", "consumer": [1]}
            answer = await client("POST", "spaces/s/subscriptions:bulk", [row], 422)
            assert answer["rejected"][0]["reason"].startswith("consumer must be a name")
            await client("PUT", "spaces/s/subscriptions/x", {"filter": "price < 5"})

    run(work)


def test_a_bulk_that_is_too_many_is_rejected_whole() -> None:
    rows = [{"id": f"s{number}", "filter": "price < 5"} for number in range(5)]

    async def work() -> None:
        async with serving() as service:
            client = Client(service)
            await client("PUT", "tenants/default", {"subscriptions": 4})
            await client("PUT", "spaces/s/subscriptions/s0", {"filter": "price < 1"})
            last = service.core.log.last
            found = await client("POST", "spaces/s/subscriptions:bulk", rows, 403)
            assert "may have 4 subscriptions and has 1; this would be 4 more" in found["detail"]
            assert service.core.log.last == last
            found = await client("POST", "spaces/s/subscriptions:bulk", rows[:4])
            assert found["accepted"] == 4
            assert sorted(service.core.registry.space(T, "s").live) == ["s0", "s1", "s2", "s3"]

    run(work)
