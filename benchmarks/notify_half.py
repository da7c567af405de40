"""Range top-k messages with an upper bound: a board made for it beside boxes and lists."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.harness import expected
from experiments.timing import DisagreementError, race
from rangecast.notify import Board
from rangecast.report.markdown import Table
from rangecast.workloads import generate

K = 10
RATE, RATIO = 2_000, 50.0
"""Expected: updates per second; times the lists worked out."""

ABOUT = f"""
**An upper bound.** Workload `topk-1.5d` (paper 001, Appendix D): interests have a range of x and an
upper bound of z; k = {K}. *Board, upper* is made for them; *Board* takes them as boxes; *lists
worked out* is the plain alternative, as above, over the first few updates. That messages keep all
lists right is checked.

Expected: at least {RATE:,} updates per second, and {RATIO:.0f} times the lists worked out; at most
16 bytes per bound and 20 beside them per interest.
"""


def upper_bound(quick: bool, runs: int) -> Table:
    """Time single updates in each way."""
    n, m, updates, few = (300, 1_000, 40, 10) if quick else (10_000, 400_000, 5_000, 20)
    made = generate("topk-1.5d", seed=1, objects=n, interests=m, updates=updates)
    ids, ys = (made.tables["updates"][name].to_pylist() for name in ("id", "value"))
    changes = list(zip(ids, ys, strict=True))
    engine: Any = Board(K, space=made.space, interests=made.tables["interests"]).engine
    tree = engine.tree

    def board(**options: Any) -> Any:
        found: Any = Board(K, space=made.space, objects=made.tables["objects"], **options)
        found.engine.tree = tree  # it doesn't change
        return found

    def play(count: int, **options: Any) -> Callable[[], int]:
        found = board(**options)
        return lambda: len(found.update_many(changes[:count]))

    def worked_out() -> Callable[[], int]:
        found = board()
        found.engine._painter.fixed = 10**9
        return lambda: len(found.update_many(changes[:few]))

    for algorithm in ("sparse", "dense"):
        judged = board(upper_bound_attribute="z", algorithm=algorithm)
        lists = judged.lists()
        lists.deliver(judged.update_many(changes))
        if wrong := len(judged.mismatches(lists)):
            raise DisagreementError(f"{wrong} lists of {algorithm} differ from a recomputation")
    ways: dict[str, Callable[[], Callable[[], int]]] = {
        "Board, upper": partial(play, updates, upper_bound_attribute="z"),
        "Board, upper, dense": partial(play, updates, upper_bound_attribute="z", algorithm="dense"),
        "Board": partial(play, updates),
    }
    raced = race(ways, rounds=runs) | race({"lists worked out": worked_out}, rounds=1)
    slowest = raced["lists worked out"].least / few
    rows = []
    for name, one in raced.items():
        count = few if name == "lists worked out" else updates
        rate, ratio = count / one.least, slowest * count / one.least
        is_ours = name == "Board, upper"
        rows.append(
            [
                *(name, rate, expected(rate, least=RATE if is_ours else None)),
                *(ratio, expected(ratio, least=RATIO if is_ours else None)),
                one.answer / count,
            ]
        )
    size = tree.memory / m
    heads = ["", "updates/s", "expected", "x lists worked out", "expected", "messages per update"]
    title = f"An upper bound: {m:,} interests, {n:,} objects, k = {K}"
    return Table(f"{title}; {size:.1f} bytes per interest", heads, rows)
