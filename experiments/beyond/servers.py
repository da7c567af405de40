"""Objects on many servers: what their processes send each other, on a line and over a space."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from experiments.experiment import Claim, Experiment, Panel, Point, Results
from experiments.timing import DisagreementError
from rangecast import Space
from rangecast.model.attributes.base import Number
from rangecast.notify.servers.processes import ServerProcesses
from rangecast.notify.servers.servers import Servers
from rangecast.report.markdown import Table

PART = "Many servers (001, Appendix C and section VII)"
OBJECTS = {"tiny": 60, "quick": 500, "full": 5_000}
INTERESTS = {"tiny": 60, "quick": 500, "full": 5_000}
UPDATES = {"tiny": 20, "quick": 100, "full": 300}
SERVERS = {"tiny": (1, 2), "quick": (1, 2, 4), "full": (1, 2, 4, 8)}
ATTRIBUTES = (1, 2)
K = 5


def points(size: str) -> Iterator[Point]:
    """Each number of servers, over one attribute and over two."""
    sizes = {"objects": OBJECTS[size], "interests": INTERESTS[size], "updates": UPDATES[size]}
    for attributes in ATTRIBUTES:
        for servers in SERVERS[size]:
            yield {**sizes, "k": K, "attributes": attributes, "servers": servers}


@lru_cache(1)
def _made(
    seed: int, objects: int, interests: int, updates: int, attributes: int
) -> tuple[dict[str, Any], list[tuple[int, float]]]:
    """Return the options of servers, and the updates: new values of any objects."""
    random = np.random.default_rng(seed)
    at, ys = random.random((objects, attributes)), random.random(objects)
    ends = np.sort(random.random((interests, 2, attributes)), axis=1)
    which, values = random.integers(0, objects, updates), random.random(updates)
    names = ["position"] if attributes == 1 else ["a", "b"]
    options: dict[str, Any] = {
        "objects": {"id": np.arange(objects), "value": ys, **dict(zip(names, at.T, strict=True))},
        "interests": {
            "id": np.arange(interests),
            **{
                f"{name}_{end}": ends[:, place, axis]
                for axis, name in enumerate(names)
                for place, end in enumerate(("lo", "hi"))
            },
        },
    }
    if attributes > 1:
        options["space"] = Space([Number(name) for name in names])
    return options, list(zip(which.tolist(), values.tolist(), strict=True))


def measure(
    seed: int, objects: int, interests: int, updates: int, k: int, attributes: int, servers: int
) -> dict[str, Any]:
    """Make all updates on processes and on simulated servers; both must send the same."""
    options, changes = _made(seed, objects, interests, updates, attributes)
    simulated = Servers(k, servers, **options)
    sent: list[Any] = []
    with ServerProcesses(k, servers, **options) as row:
        for change in changes:
            messages = row.update_many([change])
            if messages != simulated.update_many([change]):
                raise DisagreementError("processes send other messages than simulated servers")
            sent += messages
        row.settle()
        walks, sizes = row.walks._asdict(), row.sizes
    hops = sum(value for name, value in walks.items() if name.endswith("hops"))
    queries = sum(walks[name] for name in walks if name in ("first_k", "min_y", "queries"))
    return {
        "messages": len(sent) / updates,
        "queries": queries / updates,
        "hops": hops / max(1, queries),
        "largest": max(sizes),
        "sent": zlib.crc32(repr(sent).encode()),
    }


def _same(results: Results) -> bool:
    return all(len({row["sent"] for row in results.where(attributes=d)}) == 1 for d in ATTRIBUTES)


def claims(results: Results) -> Iterator[Claim]:
    """Yield the claims for many servers."""
    yield Claim(
        PART,
        "messages are the same, however many servers there are",
        _same(results),
        "per update: " + ", ".join(f"{value:.2f}" for value in results.column("messages")),
        is_ours=True,
    )
    most = max(results.distinct("servers"))
    walks = [results.one("hops", attributes=d, servers=most) for d in ATTRIBUTES]
    yield Claim(
        PART,
        "a question visits less than half of the servers",
        max(walks) < (most - 1) / 2,
        f"{walks[0]:.2f} further ones on a line, {walks[1]:.2f} over two attributes, of {most}",
        is_ours=True,
    )


def tables(results: Results) -> Iterator[Table]:
    """Work by servers."""
    heads = ["messages", "queries", "hops", "largest"]
    rows = [
        [f"{row['attributes']}, {row['servers']} servers", *(row[head] for head in heads)]
        for row in results
    ]
    named = ["messages", "questions", "further servers per question", "objects of the largest"]
    yield Table(f"Per update, {results[0]['objects']:,} objects", ["attributes", *named], rows)


def panels(results: Results) -> list[Panel]:
    """Further servers by how many there are."""
    lines = [
        results.line(f"{d} attribute{'s' * (d > 1)}", "servers", "hops", attributes=d)
        for d in ATTRIBUTES
    ]
    return [Panel("Further servers per question", "servers", "servers", lines, "x")]


def facts(results: Results) -> dict[str, str]:
    """Return how far questions walk along the most servers."""
    most = max(results.distinct("servers"))
    line, space = (results.one("hops", attributes=d, servers=most) for d in ATTRIBUTES)
    return {
        "servers": str(most),
        "line": f"{line:.2f}",
        "space": f"{space:.2f}",
        "same": "are the same" if _same(results) else "differ",
    }


EXPERIMENT = Experiment(
    name="beyond-servers",
    title="Servers as processes",
    parts=(PART,),
    about="""A process per server, linked over loopback TCP to its two neighbours, with equal shares
    of the objects. Objects, their values and the ends of interests are uniform; an update gives any
    object a new value. Over two attributes, servers own ranges of the first one, which the paper
    doesn't treat. Each row makes the same updates on simulated servers as well, and stops if
    their messages differ. Counted are messages to interests, questions of servers, and the
    *further* servers that these visit.""",
    points=points,
    measure=measure,
    claims=claims,
    tables=tables,
    panels=panels,
    panel_size=(6.8, 4.2),
    facts=facts,
    seed=1,
    verdicts={
        PART: """No claim of the paper: ours. The messages of 1 to {servers} servers {same}. On a
        line, a question visits {line} servers beyond its own of {servers}; over two attributes
        {space}: an interest may miss the objects that settle others, so walks end later.""",
    },
)
