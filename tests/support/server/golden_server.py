"""The golden data folder of a server, made once per format and kept.

    python -m tests.support.server.golden_server

A server of the same or a later format must open it and give the answers that are kept with it, with
its snapshot or from the log alone.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import shutil
from pathlib import Path
from typing import Any

import msgspec

from rangecast.server.log.acknowledged import release_reserve
from rangecast.server.pipeline.futures import result_of
from rangecast.server.service import Service
from rangecast.server.state.edits import (
    AddDeadLetters,
    DeleteConsumer,
    DeleteSubscription,
    DeleteToken,
    PutConsumer,
    PutSpace,
    PutSubscription,
    PutTenant,
    PutToken,
    StopConsumer,
)
from tests import GOLDEN
from tests.support.server.serving import ids_of

FOLDER = GOLDEN / "server-1"
"""Of format version 1."""
KINDS = [
    {"name": "price", "type": "number"},
    {"name": "count", "type": "integer"},
    {"name": "at", "type": "timestamp"},
    {"name": "is_open", "type": "boolean"},
    {"name": "sector", "type": "category", "values": ["tech", "food"]},
    {"name": "who", "type": "string"},
    {"name": "place", "type": "hierarchy", "tree": {"EU": ["de", "fr"], "US": ["ca"]}},
]
FILTERS = {
    "cheap": "price < 30",
    "tech": "sector = 'tech' and price >= 10",
    "ann": "who = 'ann' or who = 'bob' and count > 3",
    "not-ann": "who != 'ann'",
    "eu": "place = 'EU' and is_open = true",
    "late": "at > '2024-06-01'",
    "none": "price is null",
}
WEBHOOK = {"kind": "webhook", "url": "https://hook.example/", "secret": "whsec_c2VjcmV0"}


def events(count: int, seed: int) -> list[dict[str, Any]]:
    """Events of all kinds of attribute, some of them missing."""
    dice = random.Random(seed)
    made = []
    for _ in range(count):
        one = {
            "price": dice.randint(0, 60),
            "count": dice.randint(0, 6),
            "at": f"2024-{dice.randint(1, 12):02}-01T00:00:00Z",
            "is_open": dice.random() < 0.5,
            "sector": dice.choice(["tech", "food"]),
            "who": dice.choice(["ann", "bob", "eve"]),
            "place": dice.choice(["de", "fr", "ca"]),
        }
        made.append({name: value for name, value in one.items() if dice.random() < 0.8})
    return made


async def make(folder: Path) -> None:
    """Write a folder with everything that a log and a snapshot can have."""
    service = Service(folder)
    log: Any = service.core.log
    log._segment_bytes = 6_000
    service.start()

    async def edit(*edits: Any) -> int:
        return await result_of(service.core.edit(*edits))

    async def publish(some: list[dict[str, Any]], tenant: str = "red", **options: Any) -> None:
        entry = service.core.registry.space(tenant, "things")
        lines = [json.dumps(one).encode() for one in some]
        await result_of(service.core.publish(entry, lines, **options))

    for tenant in ("red", "blue"):
        await edit(PutSpace(tenant, "things", {"attribute": KINDS[:6]}))
        await edit(PutConsumer(tenant, "all", "things"), PutConsumer(tenant, "best", "things"))
        for place, (name, wanted) in enumerate(FILTERS.items()):
            if name != "eu":
                given = {"consumer": "all", "score": float(place), "weights": {"price": 2.0}}
                await edit(PutSubscription(tenant, name, "things", wanted, **given))
        plain = [{k: v for k, v in one.items() if k != "place"} for one in events(15, 1)]
        await publish(plain, tenant)
    # the space grows, subscriptions are replaced and end, a consumer is moved
    await edit(PutSpace("red", "things", {"attribute": KINDS}))
    await edit(PutSubscription("red", "eu", "things", FILTERS["eu"], "all"))
    await edit(PutSubscription("red", "cheap", "things", "price < 5", "all"))
    await publish(events(15, 2), key="request-1", digest="d")
    await edit(DeleteSubscription("red", "tech", "things"))
    await publish(
        [one | {"id": n} for n, one in enumerate(events(5, 3))], dedup=True, ignore_unknown=True
    )
    moved = PutConsumer("red", "best", "things", start=3, current_subscriptions=True)
    await edit(msgspec.structs.replace(moved, max_per_event=2))
    await edit(PutSubscription("red", "fit", "things", "price > 1", "best", 3.0))
    await edit(PutConsumer("red", "hook", "things", WEBHOOK, "stop"))
    await edit(
        StopConsumer("red", "hook", "it said 410"), AddDeadLetters("red", "hook", [5], "no", 1)
    )
    await edit(PutConsumer("red", "gone", "things"), DeleteConsumer("red", "gone"))
    await edit(PutToken("red", "a" * 64, "one", ["read"], 0), PutToken("red", "b" * 64, "two", []))
    await edit(DeleteToken("", "b" * 64), PutTenant("", "red", {"consumers": 9}))
    service.core.acknowledge(service.core.registry.consumer("red", "all"), 20)
    service.core.snapshot()
    # and what comes after the snapshot
    await edit(PutSubscription("blue", "new", "things", "who = 'zoe'", "all"))
    await publish([*events(15, 4), {"who": "zoe"}])
    await publish([{"who": "zoe"}], "blue")
    await crash(service)  # this snapshot stays the newest


def write_state(path: Path, text: str) -> None:
    """Write other contents of a snapshot's state file, with the checksum of it."""
    path.write_text(text)
    sums = path.with_name("sums.json")
    digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    sums.write_text(json.dumps(json.loads(sums.read_text()) | {"state.json": digest}))


async def crash(service: Service) -> None:
    """End without a snapshot."""
    await service.deliveries.stop()
    service.maintenance.stop()
    service.core.pipeline.stop()
    service.close()


async def told(service: Service) -> dict[str, Any]:
    """Return the meaning of a folder: all that it stores, and all that its consumers get."""
    service.start()
    registry = service.core.registry
    found: dict[str, Any] = {
        "epoch": service.core.log.epoch,
        "last": service.core.log.last,
        "messages": {},
    }
    for consumer in registry.consumers.values():
        if consumer.name != "hook":
            reader, at, messages = service.core.hub.reader(consumer), consumer.cursor, []
            while at < service.core.pipeline.durable:
                batch = reader.read(at, service.core.pipeline.durable, 10_000)
                messages += batch.messages
                at = batch.upto
            found["messages"][consumer.key] = [[one.seq, ids_of(one)] for one in messages]
    found["consumers"] = [
        [
            one.key,
            one.cursor,
            one.delivery,
            one.on_gap,
            one.max_per_event,
            one.now_from,
            one.stopped,
            one.moved,
            [[seq, letter.reason] for seq, letter in one.dead_letters.items()],
        ]
        for one in registry.consumers.values()
    ]
    found["subscriptions"] = [
        [entry.tenant, one.id, one.number, one.filter, one.born, one.score, one.weights]
        for entry in registry.spaces.values()
        for one in sorted(entry.live.values(), key=lambda version: version.number)
    ]
    found["spaces"] = [one.space.definition() for one in registry.spaces.values()]
    found["tokens"] = [[one.digest, one.label, one.scopes] for one in registry.tokens.values()]
    found["tenants"] = registry.tenants
    found["retained"] = {tenant: registry.retained.of(tenant) for tenant in ("red", "blue")}
    deduplicator = service.core.deduplicator
    found["repeats"] = [sorted(deduplicator.requests), sorted(deduplicator.ids)]
    entry = registry.space("red", "things")
    lines = [json.dumps(one).encode() for one in events(20, 5)]
    accepted = await result_of(service.core.publish(entry, lines, wants_matches=True))
    found["matches"] = accepted.matches
    await crash(service)
    plain: dict[str, Any] = json.loads(json.dumps(found))
    return plain


async def main() -> None:
    """Make the folder anew, with its answers."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    await make(FOLDER / "data")
    for name in ("lock", "*-shm", "*-wal"):  # the write-ahead log is in the segment by now
        for path in (FOLDER / "data").glob(name):
            assert not (name == "*-wal" and path.stat().st_size)
            path.unlink()
    release_reserve(FOLDER / "data")
    copy = FOLDER / "copy"
    shutil.copytree(FOLDER / "data", copy)
    answers = await told(Service(copy))
    shutil.rmtree(copy)
    (FOLDER / "answers.json").write_text(json.dumps(answers, indent=1) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
