"""Matching and ranking as functions of Spark: over columns, and in SQL.

    ids = match_ids(subscriptions, space)
    events.select("id", ids("price", "sector"))            # arrays of ids
    register_match(session, subscriptions, space)
    session.sql("select id, explode(rangecast_match(price, sector)) from events")
    session.sql("select * from rangecast_match_rows(table(select id, price, sector from events))")
    register_rank(session, subscriptions, space, k=3)
    session.sql("select * from rangecast_ranked(table(select id, price, sector from events))")

A column function looks at no DataFrame before it runs, so it works wherever an expression does: in
views, on Spark Connect, in declarative pipelines. The rows are those of `match` and of `rank`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyspark
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type
from pyspark.sql.types import ArrayType, DataType, LongType, StringType, StructType

from rangecast.errors import UsageError
from rangecast.match.answerer import MatchAnswerer
from rangecast.model.answers.answerer import Answers
from rangecast.model.attributes.field_paths import Fields
from rangecast.model.encoding.event_columns import EventColumns
from rangecast.model.encoding.events import PLAIN
from rangecast.model.space import Space
from rangecast.model.validation.flags import flag
from rangecast.rank.answerer import RankQuery
from rangecast.rank.result import check_k
from rangecast.rank.scores.tolerances import Tolerances, check_tolerances, encode_tolerances
from rangecast.spark.columns import (
    ERROR,
    ERROR_TYPE,
    check_column_type,
    need_among,
    need_types,
    reject_unknown_events,
)
from rangecast.spark.events import EncodedEvents, encode_batch
from rangecast.spark.lifetime import release_with_functions
from rangecast.spark.session import current_session, is_connect
from rangecast.spark.steps.prepared import Prepared, Subscriptions, prepare_match, prepare_rank
from rangecast.spark.steps.query import need_one_of
from rangecast.spark.steps.rank import check_prepared
from rangecast.spark.steps.results import ResultForm, answer, result_schema
from rangecast.spark.steps.shards.sharded_set import ShardedSet

REJECTED = ("error", "column")


def match_ids(
    subscriptions: Subscriptions | Prepared,
    space: Space,
    *,
    rejected: str = "error",
    nan: str = "error",
) -> Callable[..., Column]:
    """Return a column function that returns the ids of the subscriptions matching each row.

    Call it with a column for each attribute, in the order of the space; without any, it takes the
    columns named as the attributes. The ids are an array, in order of arrival; it is empty if no
    subscription matches the row.

    subscriptions   a DataFrame, `Boxes`, a snapshot folder, a file, or what `prepare_match` gave
    rejected        "error": a row that can't be used fails the job; "column": the function gives a
                    struct of `subscriptions` and `error`, the reason for a rejected row and null
                    for all others
    nan             "error": NaN in events is rejected; "missing": it is a missing value
    """
    _need_functions()
    if isinstance(subscriptions, Prepared):
        subscriptions.check(space, MatchAnswerer)
        made = _column_function(subscriptions, subscriptions.answerer, rejected, nan)
    else:
        session = _session_for(subscriptions)
        prepared = prepare_match(session, subscriptions, space)
        made = _column_function(prepared, prepared.answerer, rejected, nan)
        _release_with(session, [made._unwrapped], prepared)
    names = [attribute.name for attribute in space.valued]

    def ids(*columns: Column | str) -> Column:
        if columns and len(columns) != len(names):
            raise UsageError(
                f"the space has {len(names)} attributes: {', '.join(map(repr, names))}; given: "
                f"{len(columns)} columns\n  hint: give one column each, in this order"
            )
        named: Any = columns or [
            F.col(_quoted(attribute.path or (attribute.name,))) for attribute in space.valued
        ]
        column: Column = made(*named)
        return column

    return ids


def register_match(
    session: SparkSession,
    subscriptions: Subscriptions | Prepared,
    space: Space,
    *,
    name: str = "rangecast",
    event_id: str = "id",
    event_type: str = "bigint",
    rejected: str = "error",
    ignore_unknown: bool = False,
    nan: str = "error",
) -> None:
    """Make a set of subscriptions available to SQL, as two functions.

    `<name>_match(<a column for each attribute>)` gives an array of ids, as `match_ids` does.
    `<name>_match_rows(table(<query>))` is a table function: it takes the event's id and the
    attributes by name, and gives `event` and `subscription`, one row per pair.

    event_id     the column that names an event, for the table function
    event_type   the type of that column, "bigint" or "string": Spark asks for it beforehand
    rejected     "error": a row that can't be used fails the job; "column": the array becomes a
                 struct of `subscriptions` and `error`, and pairs have one more column, `error`
    ignore_unknown   whether the query of the table function may have columns that are neither
                 attributes nor the event's id
    nan          "error": NaN in events is rejected; "missing": it is a missing value
    """
    _need_functions()
    form = _form(event_id, event_type, rejected)
    if isinstance(subscriptions, Prepared):
        subscriptions.check(space, MatchAnswerer)
        prepared = subscriptions
    else:
        prepared = prepare_match(session, subscriptions, space)
    column_function = _column_function(prepared, prepared.answerer, rejected, nan)
    made = [
        session.udf.register(f"{name}_match", column_function),
        session.udtf.register(
            f"{name}_match_rows",
            _table_function(prepared, prepared.answerer, form, nan, ignore_unknown),
        ),
    ]
    if not isinstance(subscriptions, Prepared):
        _release_with(session, made, prepared)


def register_rank(
    session: SparkSession,
    subscriptions: Subscriptions | Prepared,
    space: Space,
    k: int = 10,
    *,
    relaxed: bool = False,
    combine: str = "sum",
    tolerances: Tolerances | None = None,
    name: str = "rangecast",
    event_id: str = "id",
    event_type: str = "bigint",
    rejected: str = "error",
    ignore_unknown: bool = False,
    nan: str = "error",
) -> None:
    """Make the top k subscriptions of a set available to SQL, as two functions.

    `<name>_rank(<a column for each attribute>)` gives an array of structs `rank`, `subscription`
    and `score`, the best first. `<name>_rank_rows(table(<query>))` is a table function: it takes
    the event's id and the attributes by name, and gives the rows of `rank`: `event`, `rank`,
    `subscription`, `score`.

    subscriptions   a DataFrame, `Boxes`, a snapshot folder, a file, or what `prepare_rank` gave
    relaxed         one attribute is enough; by the sum of the weights that hold
    combine         what of these weights a relaxed ranking is by: their "sum", "product", "min" or
                    "max"
    tolerances      in a relaxed ranking, distance by attribute below which a value outside its
                    range still counts: weight * (1 - distance / tolerance)
    event_id        the column that names an event, for the table function
    event_type      the type of that column, "bigint" or "string": Spark asks for it beforehand
    rejected        "error": a row that can't be used fails the job; "column": the array becomes a
                    struct of `answers` and `error`, and rows have one more column, `error`
    ignore_unknown  whether the query of the table function may have columns that are neither
                    attributes nor the event's id
    nan             "error": NaN in events is rejected; "missing": it is a missing value
    """
    _need_functions()
    check_k(k)
    check_tolerances(tolerances, relaxed=relaxed)
    near = tuple(encode_tolerances(tolerances, space).tolist())
    form = _form(event_id, event_type, rejected)
    if isinstance(subscriptions, Prepared):
        check_prepared(subscriptions, space, relaxed=relaxed, combine=combine)
        prepared = subscriptions
    else:
        prepared = prepare_rank(session, subscriptions, space, relaxed=relaxed, combine=combine)
    rank_query = RankQuery(k, tolerances=near)
    sharded = prepared.answerer.fitted(partial(replace, query=rank_query))
    made = [
        session.udf.register(f"{name}_rank", _column_function(prepared, sharded, rejected, nan)),
        session.udtf.register(
            f"{name}_rank_rows", _table_function(prepared, sharded, form, nan, ignore_unknown)
        ),
    ]
    if not isinstance(subscriptions, Prepared):
        _release_with(session, made, prepared)


def _form(event_id: str, event_type: str, rejected: str) -> ResultForm:
    need_one_of("event_type", event_type, ("bigint", "string"))
    need_one_of("rejected", rejected, REJECTED)
    kind = LongType() if event_type == "bigint" else StringType()
    return ResultForm(False, event_id, kind, StructType(), rejected == "column")


def _need_functions() -> None:
    if not hasattr(F, "arrow_udf"):
        raise UsageError(
            f"column functions require PySpark 4.1 or newer; this is {pyspark.__version__}\n"
            "  hint: install a newer one, or use match(events, subscriptions, space)"
        )


def _session_for(subscriptions: Subscriptions) -> SparkSession:
    """Return the session to ship the subscriptions with."""
    session = (
        subscriptions.sparkSession if isinstance(subscriptions, DataFrame) else current_session()
    )
    if session is None:
        raise UsageError(
            "there is no Spark session to distribute the subscriptions\n"
            "  hint: start one, for example with rangecast.spark.get_session()"
        )
    return session


def _release_with(session: SparkSession, functions: list[Any], prepared: Prepared) -> None:
    """Release a set once nothing uses the functions over it."""
    if is_connect(session):
        prepared.release()
        return
    of_jvm = [
        function._judf if hasattr(function, "_judf") else function._judtf for function in functions
    ]
    known = [reference.func() for reference in of_jvm]
    release_with_functions(session, known, prepared.release, prepared.memory)


def _quoted(path: Fields) -> str:
    """Quote the name of a column, or of a nested field, for Spark."""
    return ".".join(f"`{name.replace('`', '``')}`" for name in path)


_BY_NAME = EventColumns(by_name=True)


def _column_function(prepared: Prepared, sharded: ShardedSet, rejected: str, nan: str) -> Any:
    need_one_of("rejected", rejected, REJECTED)
    shipped_space = prepared.shipped_space
    names = [attribute.name for attribute in prepared.space.valued]
    with_errors = rejected == "column"
    arrow_udf: Any = vars(F)["arrow_udf"]  # which PySpark's stubs don't list
    columns = sharded.schema.names
    is_match = columns == ["subscription"]
    item_type = (
        sharded.schema.field("subscription").type if is_match else pa.struct(list(sharded.schema))
    )
    field = "subscriptions" if is_match else "answers"
    kind: DataType = ArrayType(from_arrow_type(item_type))
    if with_errors:
        kind = StructType().add(field, kind).add("error", ERROR)

    def values(answers: Answers) -> pa.Array:
        if is_match:
            return answers.columns["subscription"]
        return pa.StructArray.from_arrays([answers.columns[name] for name in columns], columns)

    def answer_batch(arrays: tuple[pa.Array, ...]) -> Iterator[pa.Array]:
        space = shipped_space.open()
        for attribute, array in zip(space.valued, arrays, strict=True):
            check_column_type(attribute.name, from_arrow_type(array.type), attribute)
        batch = pa.record_batch(list(arrays), names)
        encoded = encode_batch(space, batch, None, _BY_NAME, nan=nan, raising=not with_errors)
        for lists, begin in _in_place(
            sharded.answers(encoded.points), encoded, batch.num_rows, values, pa.nulls(0, item_type)
        ):
            if not with_errors:
                yield lists
                continue
            reasons = _errors(encoded, begin, len(lists))
            yield pa.StructArray.from_arrays([lists, reasons], [field, "error"])

    # Spark tells by the types of arguments how a function is to be called.
    if len(names) == 1:

        def match_id(columns: Iterator[pa.Array]) -> Iterator[pa.Array]:
            for column in columns:
                yield from answer_batch((column,))

        return arrow_udf(match_id, kind)

    def match_ids(columns: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        for several in columns:
            yield from answer_batch(several)

    return arrow_udf(match_ids, kind)


def _in_place(
    answers: Iterator[Answers],
    encoded: EncodedEvents,
    rows: int,
    values: Callable[[Answers], pa.Array],
    none: pa.Array,
) -> Iterator[tuple[pa.Array, int]]:
    """Yield the lists of all rows of a batch in ordered chunks; a rejected row has an empty one.

    Each chunk comes with its first row.
    """
    begin = 0
    for answer_ in answers:
        count = len(answer_.offsets) - 1
        if not count:
            continue
        places = encoded.places[answer_.first : answer_.first + count]
        end = int(places[-1]) + 1
        sizes = np.zeros(end - begin + 1, np.int64)
        sizes[places - begin + 1] = np.diff(answer_.offsets)
        yield _lists(np.cumsum(sizes), values(answer_)), begin
        begin = end
    if begin < rows:
        yield _lists(np.zeros(rows - begin + 1, np.int64), none), begin


def _lists(ends: Any, values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(ends.astype(np.int32)), values)


def _errors(encoded: EncodedEvents, begin: int, rows: int) -> pa.Array:
    """Return the errors of a range of rows; null for valid rows."""
    errors = np.full(rows, -1, np.int64)
    bad = (encoded.bad_places >= begin) & (encoded.bad_places < begin + rows)
    errors[encoded.bad_places[bad] - begin] = np.flatnonzero(bad)
    return encoded.errors.take(pa.array(errors, mask=errors < 0)).cast(ERROR_TYPE)


def _table_function(
    prepared: Prepared, sharded: ShardedSet, form: ResultForm, nan: str, ignore_unknown: bool
) -> Any:
    flag("ignore_unknown", ignore_unknown)
    shipped_space = prepared.shipped_space
    values = [PLAIN.names(attribute)[0] for attribute in prepared.space.valued]
    needed = list(dict.fromkeys([form.event_id, *values]))
    ids = pa.int64() if isinstance(form.event_type, LongType) else pa.string()

    class Answered:
        def eval(self, events: pa.RecordBatch) -> Iterator[pa.Table]:
            need_among(needed, events.schema.names, "events")
            space = shipped_space.open()
            if not ignore_unknown:
                reject_unknown_events(events.schema.names, space, PLAIN, [form.event_id])
            need_types(from_arrow_schema(events.schema), space, PLAIN)
            known = events.column(form.event_id)
            if known.type != ids and not (pa.types.is_integer(known.type) and ids == pa.int64()):
                raise UsageError(
                    f"column {form.event_id!r} of events has the type {known.type}; the function "
                    f"was registered with event_type={form.event_type.simpleString()!r}\n"
                    "  hint: cast it, or pass the actual type to register_match()"
                )
            named = {name: events.column(name) for name in needed}
            batch = pa.record_batch({**named, form.event_id: known.cast(ids)})
            encoded = encode_batch(
                space, batch, form.event_id, PLAIN, nan=nan, raising=not form.errors
            )
            for answer_ in answer(sharded, batch, encoded, form):
                yield pa.Table.from_batches([answer_])

    return F.arrow_udtf(Answered, returnType=result_schema(form, sharded.schema))
