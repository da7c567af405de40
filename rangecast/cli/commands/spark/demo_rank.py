"""The ranking step of `rangecast demo`: the best searches of every quote, verified and shown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rangecast.match.choose import build
from rangecast.model.boxes import Boxes
from rangecast.model.encoding.events import EventFile
from rangecast.model.io.files import read_tables
from rangecast.model.sets.ids import Places
from rangecast.model.space import Space
from rangecast.report.facts import EventRanking, Proof
from rangecast.report.tally import Tally

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

K = 3
"""Number of searches ranked per quote."""
_SHOWN = 3


def rank_batch(
    session: SparkSession, quotes: Path, boxes: Boxes, space: Space, result: Path
) -> None:
    """Write the best searches of every quote: event, rank, subscription, score."""
    from rangecast.spark import prepare_rank, rank

    prepared = prepare_rank(session, boxes, space)
    events = session.read.parquet(str(quotes))
    rank(events, prepared, space, K).write.parquet(str(result))


def verify_ranks(quotes: Path, boxes: Boxes, space: Space, result: Path) -> tuple[Proof, str]:
    """Verify the written ranks against all matches of every quote, sorted by score.

    The verification shares no code with ranking. The outcome is also returned as text.
    """
    matcher = build(boxes)
    by_score = np.lexsort((np.arange(boxes.rows), -boxes.scores))
    standing = np.empty(boxes.rows, np.int64)
    standing[by_score] = np.arange(boxes.rows)
    right, events = [], 0
    for ids, points in EventFile(quotes, space):
        matches = matcher.match(points)
        counts = np.diff(matches.offsets)
        event = np.repeat(np.arange(len(points)), counts)
        ordered = np.sort(event * boxes.rows + standing[matches.rows])
        has, rank = np.nonzero(np.arange(K) < counts[:, None])
        rows = by_score[ordered[matches.offsets[has] + rank] - has * boxes.rows]
        right.append((ids.to_numpy()[has] * K + rank, rows, boxes.scores[rows]))
        events += len(ids)
    of_row = Places(boxes.ids)
    written, beyond = [], 0
    for data in read_tables(result):
        ranks = data["rank"].to_numpy()
        usual = (ranks >= 1) & (ranks <= K)
        beyond += int((~usual).sum())
        places = data["event"].to_numpy() * K + ranks - 1
        its_rows, its_scores = of_row.find(data["subscription"]), data["score"].to_numpy()
        written.append((places[usual], its_rows[usual], its_scores[usual]))
    places, rows, scores = (np.concatenate(column) for column in zip(*right, strict=True))
    events_written, given_rows, given_scores = (
        np.concatenate(column) for column in zip(*written, strict=True)
    )
    # A place is an event and a rank; of those that were written twice the first is looked at.
    known, first = np.unique(events_written, return_index=True)
    both, mine, its = np.intersect1d(places, known, assume_unique=True, return_indices=True)
    its = first[its]
    other = (rows[mine] != given_rows[its]) | (scores[mine] != given_scores[its])
    missing, extra = len(places) - len(both), len(known) - len(both) + beyond
    twice, wrong = len(events_written) - len(known), int(other.sum())
    holds, ranks = not (missing or extra or twice or wrong), len(events_written) + beyond
    verdict = f"{result}: {'correct' if holds else 'incorrect'}: {events:,} events, {ranks:,} ranks"
    return Proof("Rank", events, ranks, missing, extra, twice, wrong, holds), verdict


def some_best(quotes: Path, result: Path, counted: Tally) -> list[EventRanking]:
    """Return some quotes of the day with their best searches, as examples."""
    full = pq.read_table(result, columns=["event"], filters=[("rank", "=", K)])
    ids = np.sort(full["event"].to_numpy())
    if not len(ids):
        return []
    picked = np.unique(ids[[len(ids) * (2 * n + 1) // (2 * _SHOWN) for n in range(_SHOWN)]])
    events = pq.read_table(quotes, filters=[("id", "in", picked.tolist())]).sort_by("id")
    rankings = pq.read_table(result, filters=[("event", "in", picked.tolist())])
    rankings = rankings.sort_by([("event", "ascending"), ("rank", "ascending")])
    of_row = Places(counted.boxes.ids)
    shown = []
    for quote in events.to_pylist():
        mine = rankings.filter(pc.field("event") == quote["id"])
        rows = of_row.find(mine["subscription"].combine_chunks()).tolist()
        names, scores = mine["subscription"].to_pylist(), mine["score"].to_pylist()
        best = zip(names, scores, map(counted.filter_of, rows), strict=True)
        shown.append(EventRanking(_in_words(quote), list(best)))
    return shown


def _in_words(quote: dict[str, object]) -> str:
    """Return a quote in readable form."""
    text = f"{quote['symbol']} ({quote['sector']}) at {quote['price']:.2f}"
    text += f", risk {quote['risk']:.2f}"
    return text if quote["pe"] is None else f"{text}, P/E {quote['pe']:.1f}"
