"""Memory of a subscription: in every structure, in a live set, and in a server.

Each figure is of a process of its own: what it took from the system more than before. What the
arrays count is beside it.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import re
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from benchmarks.frame import Report
from benchmarks.harness import Case, expected
from benchmarks.match import cases as match_cases
from benchmarks.server_load import BULK, SPACE, Load
from benchmarks.server_process import served
from rangecast.client import Client
from rangecast.engine import Engine
from rangecast.match.choose import INDEXES, Index
from rangecast.model.boxes import Boxes
from rangecast.report.markdown import Table
from rangecast.server.state.edits import PutSpace, PutSubscription, as_run
from rangecast.server.state.entries import Change
from rangecast.server.state.registry import Registry
from rangecast.server.state.space_index import SpaceIndex

CASES = ("W1-32k", "W2-100k", "W3-100k", "W6-100k")
ENGINE = "Engine"
PAPERS = "vcr", "hilbert"
"""Structures that take minutes to build: they get a twentieth of the boxes."""
_FEWER = 20
MOST, MOST_MB = 1.5, 600
"""Times the memory of its structure that a live set may take, and of a server with a million."""
SERVED = 1_000_000
ABOUT = f"""
Bytes per subscription. *Counted* are the arrays; *taken* is what a process of its own took from the
system for them, as the difference of its resident memory. An `Engine` has the structure that it
chose, rows and ids: at most {MOST} times its structure is expected. {" and ".join(PAPERS)} have a
twentieth of the boxes. Subscriptions of the server have four attributes and filters of about 130
characters; of a server with a million, at most {MOST_MB} MB are expected to be resident, the
libraries that it has loaded included.
"""


def run(report: Report, *, quick: bool) -> None:
    """Measure structures, live sets and a server."""
    report.begin("Memory", ABOUT)
    os.environ["RANGECAST_COMPILE"] = "first"  # a set that begins plainly has other structures
    fresh = multiprocessing.get_context("forkserver")
    fresh.set_forkserver_preload([__name__])  # so that a process doesn't import everything anew
    rows: list[list[object]] = []
    for case in (case for case in match_cases(quick=quick) if case.name in CASES):
        for name in (*INDEXES, ENGINE):
            with ProcessPoolExecutor(1, fresh) as alone:
                counted, taken, structure = alone.submit(_of_structure, case, name).result()
            times = counted / structure if structure else None
            hoped = None if times is None else expected(times, most=MOST)
            rows.append([case.name, name, counted, taken, times, hoped])
    headings = ["workload", "structure", "counted", "taken", "times its structure", "at most"]
    report.table(Table("Bytes per subscription", headings, rows, ("structure",)))
    with ProcessPoolExecutor(1, fresh) as alone:
        report.table(alone.submit(_parts, 4_000 if quick else SERVED // 5).result())
    report.table(_of_server(4_000 if quick else SERVED))


def _resident(pid: int | str = "self", key: str = "RssAnon") -> int:
    """Return the resident memory of a process in bytes."""
    if pid == "self":
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
    found = re.search(rf"{key}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) << 10


def _of_structure(case: Case, name: str) -> tuple[float, float, float]:
    """Return the bytes per subscription: counted, taken, and those of an engine's structure."""
    made = case.made()
    some = made.boxes.take(np.arange(min(2_000, made.boxes.rows)))

    def build(boxes: Boxes) -> Engine | Index:
        if name != ENGINE:
            return INDEXES[name](boxes)
        engine = Engine(made.space)
        engine.subscribe_many(boxes)
        return engine

    build(some)  # compiles, or loads what is compiled
    boxes = made.boxes
    if name in PAPERS:
        boxes = boxes.take(np.arange(boxes.rows // _FEWER))
    before = _resident()
    built = build(boxes)
    taken, count = _resident() - before, boxes.rows
    structure = built._view.parts[0].index.memory if isinstance(built, Engine) else 0
    return built.memory / count, taken / count, structure / count


def _parts(count: int) -> Table:
    """Return what each part of a server's state takes."""
    registry = Registry()
    for _ in registry.apply([PutSpace("t", "points", SPACE.definition())], 1):
        pass
    entry = registry.space("t", "points")
    index = SpaceIndex(entry)
    filters = Load.made(np.random.default_rng(7), count, 0).filters
    for first in range(0, count, BULK):
        some = enumerate(filters[first : first + BULK], first)
        edits = as_run([PutSubscription("t", f"s{n}", "points", text) for n, text in some])
        changes = registry.apply(edits, first + 2)
        index.apply([change for change in changes if isinstance(change, Change)])
    index.engine.wait_for_rebuild()
    view = index.engine._view
    structures = sum(part.index.memory for part in view.parts)
    versions = entry.live.memory
    parts = {
        "structures": structures,
        "rows of the live set": index.engine.memory - structures,
        "versions: filters and all else, packed": versions["versions"],
        "numbers of names": versions["names"],
        "by number: ids, places, seqs, consumers": versions["places"] + index.memory,
    }
    rows = [[part, size / count] for part, size in parts.items()]
    return Table("Parts of a server's state", ["part", "bytes per subscription"], rows)


def _of_server(count: int) -> Table:
    """Return the resident memory of a server before, with many subscriptions, and restarted."""
    load = Load.made(np.random.default_rng(5), count, BULK)
    rows: list[list[object]] = []

    def add(moment: str, pid: int, *, is_judged: bool = False) -> None:
        size, own = (_resident(pid, key) for key in ("VmRSS", "RssAnon"))
        hoped = expected(size / 1e6, most=MOST_MB) if is_judged else None
        rows.append([moment, size / 1e6, own / 1e6, hoped])

    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as one:
        client = Client(one.url, space="points")
        client.match_many(load.events[:10])
        add("without subscriptions", one.process.pid)
        filters = load.filters
        for first in range(0, count, BULK):
            some = enumerate(filters[first : first + BULK], first)
            client.upsert_many([{"id": f"s{n}", "filter": text} for n, text in some])
        add(f"{count:,} loaded", one.process.pid)
        client.match_many(load.events)
        time.sleep(15)
        add("15 s later", one.process.pid, is_judged=count == SERVED)
        one.process.terminate()
        one.process.wait()
        one.start()
        Client(one.url, space="points").match_many(load.events)
        time.sleep(5)
        add("restarted", one.process.pid, is_judged=count == SERVED)
    headings = ["moment", "resident MB", "of it its own", "at most"]
    return Table("A server", headings, rows)
