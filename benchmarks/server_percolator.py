"""OpenSearch's percolator: a query per box, through its interfaces for many at once.

It is the minimal distribution, which Maven brings; not run as root, and Java 21 or newer runs it.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.server_load import (
    BODIES_ANSWERED,
    BODY,
    BULK,
    EDITS,
    EDITS_IN_BULK,
    LINES,
    NAMES,
    SINGLES,
    Connection,
    Load,
    Theirs,
    race,
)
from benchmarks.started import (
    Unavailable,
    answers,
    as_user,
    download_with_maven,
    fetched,
    free_port,
    give,
    server,
    unprivileged_user,
)
from rangecast.spark.java import java_version

ARTIFACT = "org.opensearch.distribution.integ-test-zip:opensearch:3.6.0:zip"
OLDEST_JAVA = 21
JSON = "application/json"
HOST = "127.0.0.1"
_SEARCHES = 100
"""Of a request; more are slower."""
_SECONDS = 8.0
"""Seconds for which events are sent in each way."""
_SEARCH = "/boxes/_search?filter_path=took,hits.hits._id,hits.hits.fields"
_MANY = "/boxes/_msearch?filter_path=responses.status,responses.hits.hits._id"


def percolator(folder: Path, boxes: Load, quick: bool) -> list[Theirs]:
    """Measure it; `quick` leaves it out, because starting it takes most of a minute."""
    if quick:
        raise Unavailable("starting it takes longer than all else of a quick run")
    with opensearch(folder) as (port, _):
        return asyncio.run(_measured(port, boxes))


# ---- the process


@contextmanager
def opensearch(folder: Path) -> Iterator[tuple[int, int]]:
    """Run OpenSearch in a folder until the `with` ends; give its port and its process."""
    java, user, port = _java(), unprivileged_user(), free_port()
    if not shutil.which("mvn"):
        raise Unavailable("there is no Maven to fetch it with")
    (archive,) = fetched("opensearch", partial(download_with_maven, coordinates=ARTIFACT)).glob(
        "*.zip"
    )
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(folder, [name for name in packed.namelist() if _is_needed(name)])
    (home,) = folder.glob("opensearch-*")
    give(folder, user)
    settings = {
        "discovery.type": "single-node",
        "http.port": port,
        "transport.port": free_port(),
        "network.host": HOST,
    }
    command = ["bash", home / "bin" / "opensearch"]
    command += [f"-E{name}={value}" for name, value in settings.items()]
    environment = os.environ | {"OPENSEARCH_JAVA_HOME": str(java)}
    log = folder / "log.txt"
    how = {"cwd": home, "env": environment, **as_user(user)}
    with server(command, log, partial(answers, port), seconds=300, **how) as process:
        yield port, process.pid


def _is_needed(name: str) -> bool:
    """Return whether a file is needed; some modules only slow down the start."""
    _, kind, *inside = name.split("/")
    return kind != "modules" or inside[0] in {"percolator", "transport-netty4"}


def _java() -> Path:
    """Return the folder of a Java that is new enough."""
    named = [os.environ.get(name) for name in ("OPENSEARCH_JAVA_HOME", "JAVA_HOME")]
    homes = [Path(name) for name in named if name]
    if on_path := shutil.which("java"):
        homes.append(Path(on_path).resolve().parents[1])
    for home in (*homes, *sorted(Path("/usr/lib/jvm").glob("*"), reverse=True)):
        if (java_version(home) or 0) >= OLDEST_JAVA:
            return home
    raise Unavailable(f"it needs Java {OLDEST_JAVA} or newer, and none was found")


# ---- the load


def _query(low: list[float], high: list[float]) -> dict[str, Any]:
    ends = zip(NAMES, low, high, strict=True)
    ranges = [{"range": {name: {"gte": first, "lte": last}}} for name, first, last in ends]
    return {"query": {"bool": {"filter": ranges}}}


def percolate(**documents: Any) -> dict[str, Any]:
    """Return a search for the queries that match documents."""
    wanted = {"percolate": {"field": "query", **documents}}
    return {"size": 10_000, "_source": False, "query": {"constant_score": {"filter": wanted}}}


async def _measured(port: int, boxes: Load) -> list[Theirs]:
    one = await Connection.opened(HOST, port)
    fields = {"query": {"type": "percolator"}} | {name: {"type": "double"} for name in NAMES}
    index = {
        "settings": {"number_of_shards": 1, "number_of_replicas": 0},
        "mappings": {"properties": fields},
    }
    await one.ask("PUT", "/boxes", json.dumps(index).encode(), JSON)
    queries = [
        json.dumps(_query(low, high))
        for low, high in zip(boxes.lo.tolist(), boxes.hi.tolist(), strict=True)
    ]
    lines = [
        f'{{"index": {{"_id": "{name}"}}}}\n{query}\n'
        for name, query in zip(boxes.ids, queries, strict=True)
    ]
    began = time.perf_counter()
    for at in range(0, len(lines), BULK):
        body = "".join(lines[at : at + BULK]).encode()
        said = await one.ask("POST", "/boxes/_bulk?filter_path=errors", body, LINES)
        if json.loads(said)["errors"]:
            raise Unavailable("it rejected queries")
    await one.ask("POST", "/boxes/_refresh", b"", JSON)
    bulk = len(lines) / (time.perf_counter() - began)
    await one.ask("POST", "/boxes/_forcemerge?max_num_segments=1", b"", JSON)
    await _check(one, boxes)
    one.close()
    return [
        Theirs("queries in bulk", EDITS_IN_BULK, bulk),
        *await _events(port, boxes),
        Theirs("queries one by one, 64 connections", EDITS, await _edits(port, queries[0])),
    ]


def _together(boxes: Load) -> list[bytes]:
    """Return requests that search for many documents each."""
    events = boxes.events
    return [
        json.dumps(percolate(documents=events[at : at + BODY])).encode()
        for at in range(0, len(events), BODY)
    ]


def _searches(boxes: Load) -> list[bytes]:
    """Return requests of many searches each, every one for a single document."""
    singles = [json.dumps(percolate(document=event)) for event in boxes.events[:2_000]]
    return [
        "".join(f"{{}}\n{one}\n" for one in singles[at : at + _SEARCHES]).encode()
        for at in range(0, len(singles), _SEARCHES)
    ]


def hits_of(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the queries that an answer lists."""
    hits: list[dict[str, Any]] = answer.get("hits", {}).get("hits", [])  # left out if there is none
    return hits


async def _check(connection: Connection, boxes: Load) -> None:
    """Verify the ids of some documents: of a search over several, and of several searches."""
    found: list[list[str]] = [[] for _ in range(BODY)]
    answer = json.loads(await connection.ask("POST", _SEARCH, _together(boxes)[0], JSON))
    for hit in hits_of(answer):
        for slot in hit["fields"]["_percolator_document_slot"]:
            found[slot].append(hit["_id"])
    boxes.check("the percolator", found)
    answer = json.loads(await connection.ask("POST", _MANY, _searches(boxes)[0], LINES))
    boxes.check(
        "the percolator's msearch",
        [[hit["_id"] for hit in hits_of(each)] for each in answer["responses"]],
    )


async def _events(port: int, boxes: Load) -> list[Theirs]:
    singles = [json.dumps(percolate(document=event)).encode() for event in boxes.events[:2_000]]
    alone = "one document per request, 64 connections"
    ways = (
        ("documents, 1,000 per request", BODIES_ANSWERED, 4, _SEARCH, _together(boxes), JSON, BODY),
        (f"msearch of {_SEARCHES}", BODIES_ANSWERED, 4, _MANY, _searches(boxes), LINES, _SEARCHES),
        (alone, SINGLES, 64, _SEARCH, singles, JSON, 1),
    )
    found = []
    for what, beside, connections, path, bodies, kind, documents in ways:
        send = partial(rate, port, connections, path, bodies, kind)
        await send(2.0)  # the JVM compiles
        found.append(Theirs(what, beside, documents * await send(_SECONDS)))
    return found


async def rate(
    port: int, connections: int, path: str, bodies: list[bytes], kind: str, seconds: float
) -> float:
    """Return how many requests are answered per second."""
    made = [await Connection.opened(HOST, port) for _ in range(connections)]
    began = time.perf_counter()
    done = 0

    async def work(connection: Connection, place: int) -> None:
        nonlocal done
        while time.perf_counter() < began + seconds:
            await connection.ask("POST", path, bodies[place % len(bodies)], kind)
            place += connections
            done += 1
        connection.close()

    await asyncio.gather(*map(work, made, range(connections)))
    return done / (time.perf_counter() - began)


async def _edits(port: int, query: str) -> float:
    async def edits(connection: Connection, turns: int) -> None:
        for turn in range(turns):
            target = f"/boxes/_doc/e{id(connection)}-{turn}"
            await connection.ask("PUT", target, query.encode(), JSON)

    seconds, _ = await race(HOST, port, 64, 50, edits)
    return 64 * 50 / seconds
