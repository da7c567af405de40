"""Work of `rangecast demo` while Spark starts: compiling kernels, generating searches.

The JVM takes seconds to start, and leaves a core idle most of the time. Kernels that aren't cached
on disk are compiled by a separate process: a thread that compiles would hold the
GIL, which the driver needs to talk to the JVM.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

    from rangecast.model.boxes import Boxes
    from rangecast.model.space import Space

DROPPED, ADDED = 10, 4
"""The edit halfway: one search in ten is removed, and one is added for every four."""


class Searches(NamedTuple):
    """Saved searches of the demo: the first version, and the one committed halfway."""

    space: Space
    table: pa.Table
    boxes: Boxes
    changed: pa.Table
    changed_boxes: Boxes

    @classmethod
    def generate(cls, subscriptions: int, seed: int) -> Searches:
        """Generate both versions of the searches."""
        from rangecast.model.encoding.subscriptions import encode_subscriptions
        from rangecast.workloads import generate

        first = generate("market", seed=seed, subscriptions=subscriptions, events=0)
        table = first.tables["subscriptions"]
        changed = _changed(table, seed)
        boxes = encode_subscriptions(changed, first.space)
        return cls(first.space, table, first.boxes, changed, boxes)


def _changed(before: pa.Table, seed: int) -> pa.Table:
    """Return the searches of the second version: some removed, some added."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from rangecast.workloads import generate

    kept = before.filter(pa.array(np.arange(len(before)) % DROPPED != 0))
    size = -(-len(before) // ADDED)
    # A different number of subscriptions yields different searches for the same stocks.
    added = generate("market", seed=seed, subscriptions=size, events=0).tables["subscriptions"]
    names = pc.binary_join_element_wise("new", added.column("id"), "-")
    return pa.concat_tables([kept, added.set_column(0, "id", names)])


class Compiler:
    """Background process that compiles the kernels of matching, then those of ranking.

    If it dies, the first user of a kernel compiles it.
    """

    def __init__(self, subscriptions: int, seed: int):
        """Start the process."""
        spawn = multiprocessing.get_context("spawn")
        self._done, tells = spawn.Pipe(duplex=False)
        work = partial(_compile, tells, subscriptions, seed)
        spawn.Process(target=work, daemon=True).start()
        tells.close()

    def wait(self) -> None:
        """Wait for the kernels of matching; on the second call, for those of ranking."""
        with suppress(EOFError):
            self._done.recv()


def _compile(tell: Connection, subscriptions: int, seed: int) -> None:
    """Run the structures that Spark's workers will use, which caches their kernels on disk."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with the demo
    from rangecast.kernels.jit import cache_folder, is_compiled
    from rangecast.match.answerer import MatchAnswerer
    from rangecast.match.slabs.lanes import search_batch
    from rangecast.model.answers.answerer import Answerer, warm
    from rangecast.rank.answerer import RankAnswerer
    from rangecast.rank.slabs.exact import search_exact
    from rangecast.workloads import generate

    if cache_folder() is None:
        return
    uses: tuple[tuple[Callable[..., Any], Callable[[Boxes], Answerer]], ...]
    uses = (search_batch, MatchAnswerer.of), (search_exact, RankAnswerer.of)
    for kernel, make in uses:
        if not is_compiled(kernel):
            boxes = generate("market", seed=seed, subscriptions=subscriptions, events=0).boxes
            warm(make(boxes), boxes.dimensions)
        tell.send(None)
