"""Engine: a live set of subscriptions, the main entry point of the library.

    engine = Engine(space)
    engine.subscribe("cheap", "price < 10 and sector = 'tech'")
    engine.match({"price": 9.5, "sector": "tech"})           # ["cheap"]

`liveset` implements the edits, this module the queries. Each query reads one immutable view, so any
number of threads may query at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rangecast.errors import RangecastError, UsageError
from rangecast.kernels.arrays import F64, I32, I64, AnyArray, has_nan
from rangecast.liveset import LiveSet
from rangecast.match.choose import choose
from rangecast.match.counting.live import count_live
from rangecast.match.live import (
    count_on_device,
    match_event_live,
    match_live,
    match_on_device,
    match_one_live,
)
from rangecast.match.result import MatchRows, joined
from rangecast.match.terms.index import Selected, always_verified
from rangecast.model.encoding.event_columns import EventColumns, Parts
from rangecast.model.encoding.events import (
    encode_each,
    encode_event,
    encode_events,
    encode_one,
    values_of,
)
from rangecast.model.explain import Explanation, explain_match, nearest_misses
from rangecast.model.sets.members import Id
from rangecast.model.sets.rowstore import boxes_of
from rangecast.model.snapshot import load_boxes, save_boxes
from rangecast.model.threads import Threads, number_of_threads, pieces_of, side_by_side
from rangecast.model.validation.arguments import check_integer
from rangecast.model.validation.flags import flag
from rangecast.rank.live import Query, best_live, best_on_device, best_one_live
from rangecast.rank.options import Probabilities, RankOptions, ScoreFactors, probabilities_of
from rangecast.rank.rate_limit import limited, seconds_of, time_axis
from rangecast.rank.result import Best, Span
from rangecast.rank.scores.adjusted import best_adjusted, best_uncertain
from rangecast.rank.scores.combine import Combine
from rangecast.rank.scores.tolerances import Tolerances, check_tolerances, encode_tolerances
from rangecast.rebuilt import View
from rangecast.results import Matches, Rankings, ranking, separated

_NAMED = 5
"""Subscriptions that `explain` names."""


class Engine(LiveSet):
    """Live set of subscriptions over a space.

    It is thread-safe. On an event loop, await single events with
    `AsyncEngine(engine).match(event)`, and run other slow calls, such as `subscribe_many` of a
    large file, with `asyncio.to_thread`. `AsyncClient` has the same methods for a server.
    """

    # ---- matching

    def match(
        self, event: Mapping[str, Any], *, ignore_unknown: bool = False, nan: str = "error"
    ) -> list[Id]:
        """Return the subscriptions that match one event, in order of arrival.

        ignore_unknown   ignore fields that are not attributes of the space
        nan              "error": NaN in an event is rejected; "missing": it is a missing value
        """
        view = self._view  # before encoding: a string is known by then if the view needs it
        return view.lists.list(self._match_event(view, event, ignore_unknown, nan))

    def match_ids(
        self, event: Mapping[str, Any], *, ignore_unknown: bool = False, nan: str = "error"
    ) -> AnyArray:
        """Return the ids that `match` returns as an array: int64, or objects if ids are strings.

        For thousands of ids, an array is faster than a list.
        """
        view = self._view
        return view.lists.array(self._match_event(view, event, ignore_unknown, nan))

    def match_many(
        self,
        events: Any,
        *,
        ignore_unknown: bool = False,
        nan: str = "error",
        threads: Threads = 1,
        id: str | None = None,  # noqa: A002
        keep: str | Sequence[str] = (),
    ) -> Matches:
        """Return the subscriptions that match each of many events.

        events           a file, a table, a DataFrame, a dict of columns or a list of dicts
        ignore_unknown   ignore fields that are not attributes of the space
        nan              "error": NaN in an event is rejected; "missing": it is a missing value
        threads          number of threads; "auto": one per core available to this process, but
                         fewer if that leaves less than 1,024 events per thread
        id               column of the event ids, if it isn't `id`
        keep             event columns to include in `table()` of the result
        """
        view = self._view
        columns = EventColumns(texts=view.reads_texts)
        options: Any = {"ignore_unknown": ignore_unknown, "nan": nan, "columns": columns}
        ids, points = encode_events(events, self.space, **options, id=id, keep=keep)
        return Matches(self._match(view, points, threads), *separated(ids), view.lists)

    def match_each(
        self,
        events: Iterable[Mapping[str, Any]],
        *,
        ignore_unknown: bool = False,
        nan: str = "error",
    ) -> list[list[Id] | RangecastError]:
        """Return the matching subscriptions of each event, or the error of a rejected event.

        A rejected event doesn't affect the others. The options are those of `match`.
        """
        flag("ignore_unknown", ignore_unknown)
        view = self._view
        # The texts of events live as long as their own points.
        parts, errors = encode_each(
            events, self.space, ignore_unknown=ignore_unknown, nan=nan, texts=view.reads_texts
        )
        if not parts:
            return [*errors.values()]
        points = parts[0] if len(parts) == 1 else np.concatenate(parts)
        matched = joined(self._match(view, points, 1))
        lists = (view.lists.list(matched.of(number)) for number in range(len(points)))
        total = len(points) + len(errors)
        return [errors[index] if index in errors else next(lists) for index in range(total)]

    def match_points(self, points: F64, *, threads: Threads = 1) -> Matches:
        """Return the subscriptions that match each encoded event, (events, d).

        threads   number of threads, as in `match_many`
        """
        view = self._view
        coordinates = np.asarray(points, np.float64, order="C")
        if coordinates.shape == self._one and threads == 1:
            return Matches(self._match_one(view, coordinates), None, None, view.lists)
        parts = self._match(view, self._checked(coordinates), threads)
        return Matches(parts, None, None, view.lists)

    def _encode_one(self, view: View, event: Any, ignore_unknown: bool, nan: str) -> F64:
        texts = view.reads_texts
        return encode_one(event, self.space, ignore_unknown=ignore_unknown, nan=nan, texts=texts)

    def _checked(self, points: F64) -> F64:
        coordinates = np.asarray(points, np.float64, order="C")
        is_shaped = coordinates.ndim == 2 and coordinates.shape[1] == len(self.space)
        if not is_shaped or (self._on_device is None and has_nan(coordinates)):
            raise UsageError(
                f"points must have the shape (events, {len(self.space)}) and contain no NaN; "
                f"given: {coordinates.shape}"
            )
        return coordinates

    def _match_event(self, view: View, event: Any, ignore_unknown: bool, nan: str) -> I32:
        if self._on_device is None:
            return match_event_live(view, self.space, event, ignore_unknown, nan)
        return self._match_one(view, self._encode_one(view, event, ignore_unknown, nan))

    def _match_one(self, view: View, point: F64) -> I32:
        if self._on_device is None:
            return match_one_live(view, point)
        return joined(match_on_device(view, self._on_device, point)).rows

    def _match(self, view: View, points: F64, threads: Threads) -> tuple[MatchRows, ...]:
        number = 1 if threads == 1 else number_of_threads(threads, len(points))
        if self._on_device is not None:
            return match_on_device(view, self._on_device, points)
        if len(points) == 1:
            rows = match_one_live(view, points)
            return (MatchRows(np.array((0, len(rows))), rows),)
        pieces = pieces_of(len(points), number)
        return tuple(side_by_side(lambda piece: match_live(view, points[piece]), pieces, number))

    # ---- counting

    def count(
        self, event: Mapping[str, Any], *, ignore_unknown: bool = False, nan: str = "error"
    ) -> int:
        """Return the number of subscriptions that match one event; options are those of `match`.

        Subscriptions on at most two attributes are counted in a few microseconds, however many
        match; others are enumerated.
        """
        view = self._view
        if view.reads_texts:  # the rows are enumerated
            return len(self._match_event(view, event, ignore_unknown, nan))
        point = encode_event(event, self.space, ignore_unknown=ignore_unknown, nan=nan)
        return int(self._count(view, point[None])[0])

    def count_many(
        self,
        events: Any,
        *,
        ignore_unknown: bool = False,
        nan: str = "error",
    ) -> I64:
        """Return the number of matching subscriptions per event; `events` is as in `match_many`."""
        view = self._view
        points = encode_events(events, self.space, ignore_unknown=ignore_unknown, nan=nan).points
        return self._count(view, points)

    def count_points(self, points: F64) -> I64:
        """Return the number of subscriptions that match each encoded event, (events, d)."""
        return self._count(self._view, self._checked(points))

    def _count(self, view: View, points: F64) -> I64:
        if self._on_device is None:
            return count_live(view, points, self.space)
        return count_on_device(view, self._on_device, points)

    # ---- ranking

    def rank(
        self,
        event: Mapping[str, Any],
        k: int = 10,
        *,
        relaxed: bool = False,
        combine: Combine = "sum",
        tolerances: Tolerances | None = None,
        span: Span | None = None,
        score_factors: ScoreFactors | None = None,
        factor_bounds: tuple[float, float] | None = None,
        probabilities: Probabilities | None = None,
        max_per_second: int | None = None,
        time_attribute: str | None = None,
        ignore_unknown: bool = False,
        nan: str = "error",
    ) -> list[tuple[Id, float]]:
        """Return the top k subscriptions of one event with their scores, best first.

        The options are those of `rank_many`; the position of the event is 0.
        """
        view = self._view
        if (
            (relaxed is False and combine == "sum" and tolerances is None)
            and (span is None and score_factors is None and factor_bounds is None)
            and (probabilities is None and max_per_second is None and time_attribute is None)
            and self._on_device is None
        ):
            points = encode_one(event, self.space, ignore_unknown=ignore_unknown, nan=nan)
            best = best_one_live(view, points, k, self.rank_index, self.space)
            return ranking(best, 0, view.rows)
        weights = k, relaxed, combine, tolerances
        adjusted = span, score_factors, factor_bounds, probabilities
        options = RankOptions(*weights, *adjusted, max_per_second, time_attribute)
        if options.columns.spans:
            values_of(event)
            points = encode_events(
                [event], self.space, ignore_unknown=ignore_unknown, nan=nan, columns=options.columns
            ).points
        else:
            points = encode_one(event, self.space, ignore_unknown=ignore_unknown, nan=nan)
        parts = options.columns.parts(points, len(self.space))
        return ranking(self._rank(view, parts, options), 0, view.rows)

    def rank_many(
        self,
        events: Any,
        k: int = 10,
        *,
        relaxed: bool = False,
        combine: Combine = "sum",
        tolerances: Tolerances | None = None,
        span: Span | None = None,
        score_factors: ScoreFactors | None = None,
        factor_bounds: tuple[float, float] | None = None,
        probabilities: Probabilities | None = None,
        max_per_second: int | None = None,
        time_attribute: str | None = None,
        ignore_unknown: bool = False,
        nan: str = "error",
        id: str | None = None,  # noqa: A002
        keep: str | Sequence[str] = (),
    ) -> Rankings:
        """Return the top k subscriptions of each event; `events` is as in `match_many`.

        relaxed          one matching attribute is enough; the score is the sum of the weights of
                         those that match
        combine          how a relaxed ranking combines these weights: "sum", "product", "min" or
                         "max"
        tolerances       in a relaxed ranking, distance by attribute below which a value outside
                         its range still counts: weight * (1 - distance / tolerance). For a
                         timestamp seconds, or a timedelta
        span             values may be spans, which a subscription must `overlap` or `contain`:
                         pairs (first, last), or columns <attribute>_lo and <attribute>_hi
        score_factors    scores depend on the event: (position of the event, ids of some
                         subscriptions) -> factors of their scores
        factor_bounds    minimum and maximum of a factor, 0 and 1 by default; tighter bounds examine
                         fewer subscriptions
        probabilities    values are uncertain: the probability that a value lies in its span, by
                         attribute, one for all events or one for each; others are in columns
                         <attribute>_probability. The score is multiplied by the probability that
                         the subscription contains the spans
        max_per_second   keep at most this many per second, those with the best scores
        time_attribute   the timestamp for `max_per_second`, if the space has several
        ignore_unknown   ignore fields that are not attributes of the space
        nan              "error": NaN in an event is rejected; "missing": it is a missing value
        id               column of the event ids, if it isn't `id`
        keep             event columns to include in `table()` of the result
        """
        view = self._view
        weights = k, relaxed, combine, tolerances
        adjusted = span, score_factors, factor_bounds, probabilities
        options = RankOptions(*weights, *adjusted, max_per_second, time_attribute)
        ids, points = encode_events(
            events,
            self.space,
            ignore_unknown=ignore_unknown,
            nan=nan,
            columns=options.columns,
            id=id,
            keep=keep,
        )
        parts = options.columns.parts(points, len(self.space))
        return Rankings(self._rank(view, parts, options), *separated(ids), view.rows)

    def rank_points(
        self,
        points: F64,
        k: int = 10,
        *,
        relaxed: bool = False,
        combine: Combine = "sum",
        tolerances: Tolerances | None = None,
    ) -> Rankings:
        """Return the top k subscriptions of each encoded event, (events, d)."""
        view = self._view
        check_tolerances(tolerances, relaxed=relaxed)
        query = Query.of(
            (points, points),
            len(self.space),
            k,
            None,
            combine,
            relaxed=relaxed,
            tolerances=encode_tolerances(tolerances, self.space),
            on_device=self._on_device is not None,
        )
        return Rankings(self._best(view, query), None, None, view.rows)

    def _rank(self, view: View, parts: Parts, options: RankOptions) -> Best:
        k = options.k
        axis = time_axis(self.space, options.max_per_second, options.time_attribute)
        span: Span | None = "contain" if options.probabilities is not None else options.span
        rows, lo, hi = view.rows, parts.lo, parts.hi
        if options.score_factors is None and options.probabilities is None:
            best = self._best(view, options.query((lo, hi), k, span, self.space))
        else:

            def search(events: I64, ask: int) -> Best:
                some = lo[events], hi[events]
                return self._best(view, options.query(some, ask, span, self.space))

            if options.score_factors is not None:
                factors, bounds = options.score_factors, options.factor_bounds or (0.0, 1.0)
                best = best_adjusted(
                    search,
                    len(lo),
                    k,
                    lambda event, some: factors(event, rows.ids[some].tolist()),
                    bounds,
                    rows.arrival,
                )
            else:
                best = best_uncertain(
                    search,
                    lambda some: boxes_of(rows, some.astype(np.int64), self.space),
                    (lo, hi, probabilities_of(options.probabilities or {}, parts, self.space)),
                    k,
                    rows.arrival,
                )
        if options.max_per_second is not None and axis is not None:
            best = limited(best, seconds_of(lo[:, axis]), options.max_per_second)
        return best

    def _best(self, view: View, query: Query) -> Best:
        if self._on_device is not None:
            return best_on_device(view, query, self._on_device)
        return best_live(view, query, self.rank_index, self.space)

    # ---- explaining

    def why(
        self,
        event: Mapping[str, Any],
        subscription: Id,
        *,
        ignore_unknown: bool = False,
        nan: str = "error",
    ) -> Explanation:
        """Explain why a subscription matches an event, or which attributes don't and by how much.

        It prints as one line; `boxes` has one line per attribute for each alternative of the
        filter. The options are those of `match`.
        """
        boxes, _ = self.select([subscription])
        point = encode_event(event, self.space, ignore_unknown=ignore_unknown, nan=nan)
        return explain_match(self.space, boxes, 0, point, dict(event))

    def why_not(
        self,
        event: Mapping[str, Any],
        k: int = 5,
        *,
        ignore_unknown: bool = False,
        nan: str = "error",
    ) -> list[Explanation]:
        """Return the k subscriptions closest to matching an event, and why they don't match.

        They are ordered by the number of attributes that don't match, then by distance. This scans
        all subscriptions, without an index. The options are those of `match`.
        """
        boxes = self.boxes()
        point = encode_event(event, self.space, ignore_unknown=ignore_unknown, nan=nan)
        rows = nearest_misses(self.space, boxes, point, check_integer("k", k))
        return [explain_match(self.space, boxes, row, point, dict(event)) for row in rows]

    def explain(self) -> str:
        """Describe the set: its indexes, why they were chosen, and their memory.

        For a set with shapes, include how many subscriptions were selected, verified and matched.
        """
        view = self._view
        count = len(self)
        lines = [f"{self!r}, {self.memory:,} bytes"]
        for number, part in enumerate(view.parts):
            why = "added to the first since it was built"
            if not number:
                chosen, why = choose(self.boxes(), self.index)
                why = why if chosen.startswith(part.index.name) else f"to become {chosen}: {why}"
            size = f"{part.count:,} rows, {part.index.memory:,} bytes"
            lines.append(f"part {number + 1}: {part.index.name}, {size}; {why}")
            if isinstance(part.index, Selected):
                lines.append(f"  {part.index.terms}")
            for combine, ranked in list(part.rankings.items()):
                by = "score" if combine is None else f"the {combine} of weights"
                index = ranked.structure
                lines.append(f"  ranked by {by}: {index.name}, {index.memory:,} bytes")
        if self.space.patterns:
            boxes = self.boxes()
            always = always_verified(boxes)
            named = ", ".join(map(str, boxes.ids.take(always[:_NAMED]).to_pylist()))
            more = f" ({named}{', ...' if len(always) > _NAMED else ''})" if len(always) else ""
            lines.append(
                f"text: {len(always):,} of {count:,} subscriptions are always verified{more}"
            )
        if self._on_device is not None:
            lines.append(f"device: {self.device}, {self._on_device.memory:,} bytes on it; no parts")
        else:
            recent = view.count - view.indexed
            lines.append(f"recent: {recent:,} of {count:,} subscriptions are in no part yet")
        lines.append(f"dead: {view.dead:,} that the next rebuild removes")
        if view.verifier is not None:
            lines.append(str(view.verifier.counts))
        return "\n".join(lines)

    # ---- snapshots

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Save the live subscriptions and the space atomically as a snapshot folder.

        An existing snapshot is an error, unless `overwrite` replaces it.
        """
        save_boxes(path, self.boxes(), self.space, overwrite=overwrite)

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        index: str = "auto",
        rank_index: str = "auto",
        device: str | None = None,
    ) -> Engine:
        """Open a snapshot as a new live set.

        A snapshot stores no options: it can be opened with any `index`, `rank_index` and `device`.
        """
        boxes, space = load_boxes(path)
        engine = cls(space, index=index, rank_index=rank_index, device=device)
        engine.subscribe_many(boxes)
        return engine
