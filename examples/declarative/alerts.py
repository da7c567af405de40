"""A declarative pipeline of Spark: a table of quotes, and one of the searches that they match.

Run it with `spark-pipelines run` (PySpark 4.1 or newer). The searches are read once, when the
pipeline is defined; the tables are made by Spark.
"""

from pathlib import Path

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from rangecast import Number, Space, String
from rangecast.spark import match_ids

spark = SparkSession.active()
space = Space([Number("price"), String("sector")])
found = match_ids(Path(__file__).parent / "searches.csv", space)


@dp.materialized_view
def quotes() -> DataFrame:
    """Return a hundred quotes."""
    sector = "element_at(array('tech', 'energy', 'health'), 1 + cast(id % 3 as int)) as sector"
    return spark.range(100).selectExpr("id", "cast(id as double) as price", sector)


@dp.materialized_view
def alerts() -> DataFrame:
    """Return a row for each quote and search that it matches."""
    return spark.read.table("quotes").select("id", F.explode(found()).alias("search"))
