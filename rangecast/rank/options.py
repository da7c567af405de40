"""Validated options of `Engine.rank` and `Engine.rank_many`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64
from rangecast.model.encoding.event_columns import EventColumns
from rangecast.model.sets.members import Id
from rangecast.model.space import Space
from rangecast.rank.live import Query
from rangecast.rank.scores.adjusted import check_adjusted
from rangecast.rank.scores.combine import Combine
from rangecast.rank.scores.tolerances import Tolerances, check_tolerances, encode_tolerances
from rangecast.rank.slabs.index import Span

ScoreFactors = Callable[[int, list[Id]], npt.ArrayLike]
"""(event, ids of some subscriptions) -> factors of their scores for this event, which is given by
its position in the batch."""
Probabilities = Mapping[str, npt.ArrayLike]
"""The probability that a value lies in its span, by attribute: one number for all events, or one
for each."""


@dataclass(frozen=True, slots=True)
class RankOptions:
    """Validated options of `rank` and `rank_many`."""

    k: int
    relaxed: bool
    combine: Combine
    tolerances: Tolerances | None
    span: Span | None
    score_factors: ScoreFactors | None
    factor_bounds: tuple[float, float] | None
    probabilities: Probabilities | None
    max_per_second: int | None
    time_attribute: str | None

    def __post_init__(self) -> None:
        check_adjusted(
            relaxed=self.relaxed,
            span=self.span,
            probabilities=self.probabilities is not None,
            score_factors=self.score_factors is not None,
        )
        check_tolerances(self.tolerances, relaxed=self.relaxed)
        if self.factor_bounds is not None and self.score_factors is None:
            raise UsageError("factor_bounds require score_factors")

    def query(self, spans: tuple[F64, F64], k: int, span: Span | None, space: Space) -> Query:
        """Check the arguments and return the query."""
        tolerances = encode_tolerances(self.tolerances, space)
        how: dict[str, Any] = {"relaxed": self.relaxed, "tolerances": tolerances}
        return Query.of(spans, len(space), k, span, self.combine, **how)

    @property
    def columns(self) -> EventColumns:
        """Columns that events may have."""
        uncertain = self.probabilities is not None
        return EventColumns(spans=uncertain or self.span is not None, probabilities=uncertain)
