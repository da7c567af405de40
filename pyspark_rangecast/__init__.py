"""Data source entry point: Spark imports `pyspark_rangecast` for `format("rangecast")`."""

from rangecast.spark.source import SubscriptionsSource as DefaultSource

__all__ = ["DefaultSource"]
