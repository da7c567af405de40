"""Saved searches in bodies of 1,000 events: our server beside OpenSearch's percolator.

The machine may be busy, so the processor time of each server counts, all of its threads.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.server_load import BODY, BULK, EVENTS, LINES, Connection
from benchmarks.server_percolator import HOST, JSON, hits_of, opensearch, percolate, rate
from benchmarks.server_process import served
from experiments.timing import DisagreementError
from rangecast import Space
from rangecast.client import Client

_CONNECTIONS = 4
_SEARCH = "/searches/_search?filter_path=hits.hits._id,hits.hits.fields"
_CHECKED = 100
"""Of how many events ids are compared."""


class Search(NamedTuple):
    """A saved search: two words of a title, and a range of a price."""

    words: tuple[str, str]
    low: int
    high: int

    @property
    def filter(self) -> str:
        """Return it as ours."""
        words = ", ".join(f"'{word}'" for word in self.words)
        return f"words(title) has all ({words}) and price between {self.low} and {self.high}"

    @property
    def query(self) -> dict[str, Any]:
        """Return it as a percolator has it."""
        words = [{"term": {"title": word}} for word in self.words]
        price = {"range": {"price": {"gte": self.low, "lte": self.high}}}
        return {"query": {"bool": {"filter": [*words, price]}}}


def in_bodies(
    space: Space,
    searches: dict[str, Search],
    events: list[dict[str, Any]],
    expected: Sequence[Sequence[Any]],
    seconds: float,
) -> tuple[float, float]:
    """Return processor seconds per event, the percolator's and our server's; compare answers."""
    with tempfile.TemporaryDirectory() as folder, opensearch(Path(folder)) as (port, process):
        theirs = asyncio.run(_theirs(port, process, searches, events, expected, seconds))
    with tempfile.TemporaryDirectory() as folder, served(Path(folder), space) as server:
        with Client(server.url, space="points") as client:
            rows = [{"id": name, "filter": one.filter} for name, one in searches.items()]
            for at in range(0, len(rows), BULK):
                client.upsert_many(rows[at : at + BULK])
            found = client.publish(events[:_CHECKED], matches=True).matches
            assert found is not None
            _compare("the server", found, expected)
        ours = asyncio.run(_ours(server.port, server.process.pid, events, seconds))
    return theirs, ours


def _processor_seconds(process: int) -> float:
    """Return what a process, with all of its threads, has taken so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _per_event(
    process: int, send: Callable[[float], Awaitable[float]], seconds: float
) -> float:
    """Return the processor seconds of an event; `send` returns the bodies answered per second."""
    await send(seconds / 4)  # compilers have done most of their work by then
    before, began = _processor_seconds(process), time.perf_counter()
    bodies = await send(seconds)
    took = _processor_seconds(process) - before
    return took / (bodies * (time.perf_counter() - began) * BODY)


def _compare(who: str, found: Sequence[Sequence[Any]], expected: Sequence[Sequence[Any]]) -> None:
    for place, (ids, right) in enumerate(zip(found[:_CHECKED], expected, strict=False)):
        if set(ids) != set(right):
            raise DisagreementError(f"{who}, event {place}: {set(ids) ^ set(right)}")


async def _ours(port: int, process: int, events: list[dict[str, Any]], seconds: float) -> float:
    lines = [json.dumps(event).encode() for event in events]
    bodies = [b"\n".join(lines[at : at + BODY]) for at in range(0, len(lines), BODY)]
    send = partial(rate, port, _CONNECTIONS, EVENTS + "?wait=matches", bodies, LINES)
    return await _per_event(process, send, seconds)


async def _theirs(
    port: int,
    process: int,
    searches: dict[str, Search],
    events: list[dict[str, Any]],
    expected: Sequence[Sequence[Any]],
    seconds: float,
) -> float:
    one = await Connection.opened(HOST, port)
    fields = {
        "query": {"type": "percolator"},
        "title": {"type": "text", "analyzer": "whitespace"},
        "price": {"type": "double"},
    }
    index = {
        "settings": {"number_of_shards": 1, "number_of_replicas": 0},
        "mappings": {"properties": fields},
    }
    await one.ask("PUT", "/searches", json.dumps(index).encode(), JSON)
    lines = [
        f'{{"index": {{"_id": "{name}"}}}}\n{json.dumps(search.query)}\n'
        for name, search in searches.items()
    ]
    for at in range(0, len(lines), BULK):
        body = "".join(lines[at : at + BULK]).encode()
        said = await one.ask("POST", "/searches/_bulk?filter_path=errors", body, LINES)
        if json.loads(said)["errors"]:
            raise DisagreementError("it rejected queries")
    await one.ask("POST", "/searches/_refresh", b"", JSON)
    await one.ask("POST", "/searches/_forcemerge?max_num_segments=1", b"", JSON)
    bodies = [
        json.dumps(percolate(documents=events[at : at + BODY])).encode()
        for at in range(0, len(events), BODY)
    ]
    found: list[list[str]] = [[] for _ in range(BODY)]
    for hit in hits_of(json.loads(await one.ask("POST", _SEARCH, bodies[0], JSON))):
        for slot in hit["fields"]["_percolator_document_slot"]:
            found[slot].append(hit["_id"])
    _compare("the percolator", found, expected)
    one.close()
    send = partial(rate, port, _CONNECTIONS, _SEARCH, bodies, JSON)
    return await _per_event(process, send, seconds)
