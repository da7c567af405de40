"""Steps of a stream, between its source and its sinks.

    MatchStep(subscriptions, [Folder("matches/")], output="arrays")
    RankStep(subscriptions, [Folder("best/")], k=3)
    FilterStep([MergedSet(subscriptions)], [Folder("wanted/")])

Every step takes the events of the source; `filters` are summaries that let only some of them
through. A step names its sinks. Each batch is pinned to one version of the step's set, which
answers it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from rangecast.device.devices import check_device_index
from rangecast.errors import UsageError, did_you_mean
from rangecast.match.choose import check_index as check_match_index
from rangecast.model.space import Space
from rangecast.rank.answerer import RankAnswerer, RankQuery
from rangecast.rank.choose import check_index as check_rank_index
from rangecast.rank.rate_limit import time_axis
from rangecast.rank.result import check_k
from rangecast.rank.scores.combine import check_combine
from rangecast.rank.scores.tolerances import Tolerances, check_tolerances, encode_tolerances
from rangecast.spark.shipped import ShippedObject
from rangecast.spark.steps.filter import PassThroughQuery
from rangecast.spark.steps.match import OUTPUTS, match_query
from rangecast.spark.steps.prepared import MAX_WORKER_MEMORY, match_maker
from rangecast.spark.steps.query import EventQuery, QuerySource
from rangecast.spark.steps.rank import TAKEN, best_of_seconds
from rangecast.spark.steps.shards.sharded_set import Settings, as_it_is
from rangecast.spark.stream.sets import MergedSet, ReadySets, Subscriptions
from rangecast.spark.stream.sinks.base import Batch, Sink


@dataclass
class AnswerStep(ABC):
    """A step that answers events; the base of all steps."""

    subscriptions: Subscriptions
    sinks: Sequence[Sink]
    _: KW_ONLY
    keep: Sequence[str] = ()
    """Columns of the events to keep in the output."""
    filters: Sequence[MergedSet] = ()
    """Only events that all of these summaries hold are answered."""
    index: str = "auto"
    device: str | None = None
    """`cuda`: each worker has a GPU."""
    max_worker_memory: int = MAX_WORKER_MEMORY
    name: str = ""
    _ready: ReadySets = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.name = self.name or type(self).__name__.removesuffix("Step").lower()
        if self.space.vocabularies and any(
            filter_.of.base is not self.subscriptions.base for filter_ in self.filters
        ):
            raise UsageError(
                f"step {self.name!r}: in a space with texts, its filter must come from the same "
                "subscriptions, as others number the texts differently"
            )

    @property
    def space(self) -> Space:
        """The space of the events."""
        return self.subscriptions.space

    @property
    def sets(self) -> list[Subscriptions]:
        """All sets that it needs."""
        return [self.subscriptions, *(filter_.of for filter_ in self.filters)]

    def ready(self, session: SparkSession, version: int) -> tuple[QuerySource, int]:
        """Return the answerer for a version of the subscriptions, and their number."""
        prepared = self._ready.ready(session, version)
        return prepared, prepared.rows

    def prefilters(self, session: SparkSession, stream: str, batch: int) -> list[ShippedObject]:
        """Return the prefilters for the events of a batch."""
        return [
            filter_.ready(session, filter_.of.pin(stream, batch)).prefilter
            for filter_ in self.filters
        ]

    def release(self) -> None:
        """Release what was built for batches."""
        for filter_ in self.filters:
            filter_.release()
        if hasattr(self, "_ready"):
            self._ready.release()

    @abstractmethod
    def query(self, events: DataFrame, keep: Sequence[str], nan: str) -> EventQuery:
        """Check the columns of events, and return the query, with errors."""

    @property
    def settings(self) -> Settings:
        """Return the function that fits a set to the query."""
        return as_it_is

    @property
    def arrays(self) -> bool:
        """Whether the result has one row with lists per event, instead of one row per answer."""
        return False

    @property
    def by_workers(self) -> bool:
        """Whether a worker's answers are final, so that it may write them itself."""
        return True

    @property
    def good(self) -> Column:
        """Whether a row is an answer; others are of rejected events."""
        return is_good()

    def columns(self, answers: StructType) -> StructType:
        """Return the columns of the final answers."""
        return answers

    def finish(self, frame: DataFrame, batch: Batch, held: ExitStack) -> DataFrame:
        """Turn the workers' answers into the final answers.

        held   left when the batch is written
        """
        return frame


def is_good() -> Column:
    """Return whether an answered event is valid: complete, with an id and valid values."""
    return F.col("error").isNull() & F.col("event").isNotNull()


@dataclass
class MatchStep(AnswerStep):
    """Which subscriptions match each event."""

    output: str = "rows"
    """pairs: a row for each event and subscription; arrays: a row for each event."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.output not in OUTPUTS:
            raise UsageError(f"no output {self.output!r}: {did_you_mean(self.output, OUTPUTS)}")
        check_match_index(self.index)
        check_device_index(self.device, self.index)
        make = match_maker(self.index, self.max_worker_memory, self.device)
        self._ready = ReadySets(self.subscriptions, make, self.max_worker_memory)

    def query(self, events: DataFrame, keep: Sequence[str], nan: str) -> EventQuery:
        return match_query(events, self.space, output=self.output, **query_options(keep, nan))

    @property
    def arrays(self) -> bool:
        return self.output == "arrays"


@dataclass
class RankStep(AnswerStep):
    """The top k subscriptions of each event: event, rank, subscription, score."""

    k: int = 10
    relaxed: bool = False
    combine: str = "sum"
    tolerances: Tolerances = field(default_factory=dict)
    max_per_second: int | None = None
    """Within a batch."""
    time_attribute: str | None = None
    """Timestamp for `max_per_second`, if the space has several."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_k(self.k)
        check_rank_index(self.index)
        check_combine(self.combine, relaxed=self.relaxed)
        check_tolerances(self.tolerances, relaxed=self.relaxed, index=self.index)
        near = tuple(encode_tolerances(self.tolerances, self.space).tolist())
        axis = time_axis(self.space, self.max_per_second, self.time_attribute)
        self._rank_query = RankQuery(self.k, axis, tolerances=near)
        check_device_index(self.device, self.index)
        make = partial(
            RankAnswerer.of,
            index=self.index,
            relaxed=self.relaxed,
            combine=self.combine,
            device=self.device,
        )
        self._ready = ReadySets(self.subscriptions, make, self.max_worker_memory)

    def query(self, events: DataFrame, keep: Sequence[str], nan: str) -> EventQuery:
        return EventQuery.of(events, self.space, taken=TAKEN, **query_options(keep, nan))

    @property
    def settings(self) -> Settings:
        return partial(replace, query=self._rank_query)

    @property
    def by_workers(self) -> bool:
        return self.max_per_second is None

    def finish(self, frame: DataFrame, batch: Batch, held: ExitStack) -> DataFrame:
        return frame if self.max_per_second is None else best_of_seconds(frame, self.max_per_second)


class FilterStep(AnswerStep):
    """The events that may match a subscription: event, and the columns to keep."""

    def __init__(self, filters: Sequence[MergedSet], sinks: Sequence[Sink], **options: Any):
        super().__init__(filters[0].of, sinks, filters=filters, **options)

    def ready(self, session: SparkSession, version: int) -> tuple[QuerySource, int]:
        summed = self.filters[0].ready(session, version)
        return PassThroughQuery(summed.space), summed.rows

    def query(self, events: DataFrame, keep: Sequence[str], nan: str) -> EventQuery:
        return EventQuery.of(events, self.space, taken=(), **query_options(keep, nan))


def query_options(keep: Sequence[str], nan: str) -> dict[str, Any]:
    """Return the options of a query; unknown columns were checked for all steps at once."""
    return {"keep": keep, "rejected": "column", "ignore_unknown": True, "nan": nan}
