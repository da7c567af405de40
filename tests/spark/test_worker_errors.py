"""Errors of workers reach the caller as what they are, with Spark's exception as their cause."""

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, PythonException

from rangecast.errors import FilterError, RejectedRowError, UsageError
from rangecast.model.attributes.base import Number
from rangecast.model.boxes import Boxes
from rangecast.model.space import Space
from rangecast.spark import match
from rangecast.spark.worker_errors import worker_error

SPACE = Space([Number("price")])
TRACE = """An exception was thrown from the Python worker: Traceback (most recent call last):
  File "x.py", line 1, in <module>
rangecast.errors.{}
 SQLSTATE: 38000
\tat org.apache.spark.api.python.BasePythonRunner
"""


@pytest.mark.parametrize("action", ["collect", "toArrow"])
def test_an_error_of_a_worker_is_raised_as_what_it_is(spark, action):
    events = spark.createDataFrame([("1", "3"), ("2", "x")], "id string, price string")
    found = match(events, Boxes.of([[0.0]], [[9.0]], space=SPACE), SPACE)
    spark.newSession()  # PySpark hooks itself in again
    with pytest.raises(RejectedRowError) as error:
        getattr(found.filter("true"), action)()
    assert str(error.value) == (
        "event '2', column 'price': 'x' is not a number\n  given: x\n"
        "  hint: correct the value, or get a column of errors with rejected='column'"
    )
    assert (error.value.rejected.source, error.value.rejected.column) == ("event '2'", "price")
    assert isinstance(error.value.__cause__, PySparkException | Py4JError)


def test_other_errors_of_spark_stay_as_they_are(spark):
    def fail(batches):
        raise KeyError("mine")

    with pytest.raises(PythonException, match="KeyError"):
        spark.range(1).mapInArrow(fail, "id long").collect()
    assert worker_error("Job aborted: KeyError: 'rangecast.errors.UsageError'") is None


def test_the_text_of_an_error_is_whole_and_without_java():
    text = "expected a number (line 1, column 9)\n  price < x\n          ^\nhint: put it in quotes"
    error = worker_error(TRACE.format(f"FilterError: {text}"))
    assert isinstance(error, FilterError)
    assert str(error) == text
    odd = worker_error(TRACE.format("RejectedRowError: of another form"))
    assert isinstance(odd, UsageError)
    assert str(odd) == "of another form"


def test_a_session_of_ours_prints_no_stack_of_java_for_what_it_raises(spark):
    log4j = spark.sparkContext._jvm.org.apache.logging.log4j.LogManager
    for name in ("executor.Executor", "scheduler.TaskSetManager", "util.Utils"):
        assert log4j.getLogger(f"org.apache.spark.{name}").getLevel().name() == "OFF"
