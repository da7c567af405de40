"""Validated options of `Engine.rank` and `Engine.rank_many`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64
from rangecast.model.encoding.event_columns import EventColumns, Parts
from rangecast.model.sets.members import Id
from rangecast.model.space import Space
from rangecast.rank.live import Query
from rangecast.rank.result import Span
from rangecast.rank.scores.adjusted import check_adjusted
from rangecast.rank.scores.combine import Combine
from rangecast.rank.scores.tolerances import Tolerances, check_tolerances, encode_tolerances

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


def probabilities_of(probabilities: Probabilities, parts: Parts, space: Space) -> F64:
    """Return the probability of each value, (events, d)."""
    assert parts.probabilities is not None
    lo, sure = parts.lo, parts.probabilities
    for name, value in probabilities.items():
        axis = space.axis(name)
        probability = np.asarray(value, np.float64)
        if probability.shape not in ((), (len(lo),)):
            raise UsageError(
                f"a probability must be one number, or one for each of {len(lo):,} events; "
                f"given for {name!r}: {probability.shape}"
            )
        wrong = probability[~((probability >= 0) & (probability <= 1))]
        if len(wrong):
            raise UsageError(
                f"a probability must be between 0 and 1; given for {name!r}: {wrong[0]}"
            )
        if len(lo) and np.isposinf(lo[:, axis]).all():
            raise UsageError(f"{name!r} has a probability, but the event has no value for it")
        sure[:, axis] = probability
    return sure
