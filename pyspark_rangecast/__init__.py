"""What makes Spark know `format("rangecast")`: it looks for packages named like this one."""

from rangecast.spark.source import SubscriptionsSource as DefaultSource

__all__ = ["DefaultSource"]
