"""The oracle of verification: recipients of an event, by the edits of a log."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path

import pytest

from rangecast.errors import FilterError, UsageError
from rangecast.model.attributes.base import Number
from rangecast.model.attributes.text import String
from rangecast.model.filters.filter import Filter
from rangecast.model.filters.tentative import TentativeSpace
from rangecast.model.space import Space
from rangecast.server.pipeline.commands import Edits
from rangecast.server.pipeline.futures import result_of
from rangecast.server.state.edits import (
    AnyEdit,
    DeleteConsumer,
    DeleteSubscription,
    PutConsumer,
    PutSpace,
    PutSubscription,
    as_run,
)
from rangecast.server.verify.deliveries import verify_deliveries
from rangecast.server.verify.oracle import DeliveryOracle
from tests.support.server.serving import SPACE, Client, T, run, serving

BEST = {"one": 0, "two": 2}


@pytest.mark.parametrize("only", [None, "two"])
def test_a_judge_finds_what_every_edit_means(only: str | None) -> None:
    """Of two spaces, and of two tenants that have the same names."""
    rng, judge, seq = random.Random(5), DeliveryOracle(T, only), 0
    live: dict[tuple[str, str], tuple[int, int, float, str, int]] = {}

    def edit(*edits: AnyEdit) -> None:
        nonlocal seq
        judge.apply(edits, seq + 1)
        seq += len(edits)

    for name in ("s", "t"):
        edit(PutSpace(T, name, SPACE.definition()), PutSpace("other", name, SPACE.definition()))
    consumers = [PutConsumer(T, name, "s", max_per_event=best) for name, best in BEST.items()]
    edit(*consumers, PutConsumer("other", "two", "s"))
    edit(PutSubscription("other", "n1", "s", "price > 0", "two"))
    for step in range(200):
        space, name = rng.choice("st"), f"n{rng.randrange(9)}"
        if step % 50 == 20:
            more = Space([*SPACE, Number(f"more{step}")])
            edit(PutSpace(T, space, more.definition()))
        elif step % 50 == 40:
            live = {key: one for key, one in live.items() if one[3] != "two"}
            edit(DeleteConsumer(T, "two"), consumers[1])
        elif (space, name) in live and rng.random() < 0.3:
            del live[space, name]
            edit(DeleteSubscription(T, name, space))
        else:
            low, high, score = rng.randrange(9), rng.randrange(10, 19), rng.randrange(3)
            owner = rng.choice(("one", "two", ""))
            came = live[space, name][4] if (space, name) in live else seq + 1
            live[space, name] = low, high, score, owner, came
            wanted = f"price < {low} or price > {high}"  # two boxes, which match once
            edit(PutSubscription(T, name, space, wanted, owner, score))
        prices = [rng.randrange(20) for _ in range(4)]
        for where in "st":
            events = [{"price": price, "colour": "red"} for price in prices]
            found = judge.recipients(where, [*events, {"price": "much"}, [1]])
            assert found[-2:] == [None, None]
            for price, said in zip(prices, found, strict=False):
                expected: dict[str, list[str]] = {}
                order = sorted(live.items(), key=lambda one: (-one[1][2], one[1][4]))
                for (there, name), (low, high, _, owner, _) in order:
                    if there == where and owner and not low <= price <= high:
                        expected.setdefault(owner, []).append(name)
                expected = {owner: ids[: BEST[owner] or None] for owner, ids in expected.items()}
                if only is not None:
                    expected = {owner: ids for owner, ids in expected.items() if owner == only}
                assert said == expected
    with pytest.raises(UsageError, match="no space 'u' of the tenant default"):
        judge.recipients("u", [])


WORDS = [f"w{number}" for number in range(3_000)]


def any_of(words: list[str]) -> str:
    return f"who in ({', '.join(map(repr, words))})"


def test_a_filter_that_was_accepted_is_proved_though_its_words_lie_apart(tmp_path: Path) -> None:
    """Two that came together were read as a box each; the words of the first then had numbers."""
    wanted = {"every": WORDS, "evens": WORDS[::2]}
    edits = [PutSubscription(T, one, "w", any_of(words), "mine") for one, words in wanted.items()]
    lines = [b'{"who": "w%d"}' % number for number in range(2_990, 3_010)]

    async def work() -> None:
        async with serving(tmp_path) as service:
            await result_of(
                service.core.edit(PutSpace(T, "w", Space([String("who")]).definition()))
            )
            await result_of(service.core.edit(PutConsumer(T, "mine", "w")))
            entry = service.core.registry.space(T, "w")
            asked = []
            for edit in edits:  # both are read before one of them is carried out
                read = service.core.quotas.parsed(T, edit.filter, TentativeSpace(entry.space))
                asked.append(Edits(as_run([edit]), read))
            for one in asked:
                service.core.pipeline.submit(one)
            await asyncio.gather(*[result_of(one.answer) for one in asked])
            await result_of(service.core.publish(entry, lines))
            with pytest.raises(FilterError, match="1,500 boxes"):
                Filter.parse(edits[1].filter, entry.space)
            client = Client(service)
            found = await client("GET", "consumers/mine/messages?limit=100")
            assert [one["subscriptions"] for one in found["items"]] == [
                ["every", "evens"] if number % 2 == 0 else ["every"]
                for number in range(2_990, 3_000)
            ]
            (tmp_path / "got.jsonl").write_text("\n".join(map(json.dumps, found["items"])))
            body = {"event": {"who": "w2998"}, "subscription": "evens"}
            assert (await client("POST", "spaces/w/why", body))["matches"]
            covered = await client("POST", "spaces/w/subscriptions:find-covering", body)
            assert covered["covered_by"] == "every"

    run(work)
    report = verify_deliveries(tmp_path, T, "mine", tmp_path / "got.jsonl")
    assert (report.holds, report.expected) == (True, 10), report.samples
