"""Sources, sets and sinks by their names in a catalog of Spark's: its own, and one of Iceberg."""

import subprocess
import sys

import pyspark
import pytest

from rangecast import Engine
from rangecast.errors import FileError, UsageError
from rangecast.model.space import Space
from tests.spark.stream.test_pipeline_graph import CHECKPOINT, SPACE, load, step
from tests.support.server.servers import ROOT, Unavailable, environment, jars

EVENTS = [(1, 10.0, "bob"), (2, 45.0, "ann"), (3, 80.0, "bob"), (4, 59.0, None)]
MORE = [(5, 30.0, "bob"), (6, 99.5, "eve")]
SEARCHES = [("wide", "price < 60"), ("bob", "name = 'bob' and price < 50"), ("none", "price > 99")]

ICEBERG = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
"""Of the newest Spark that Iceberg has a runtime for."""
CODE = """
import sys
from pathlib import Path
from rangecast.spark import get_session
from tests.spark.stream.test_catalog import follow
from tests.support.server.servers import LIGHT

folder, jar = Path(sys.argv[1]), sys.argv[2]
catalog = "spark.sql.catalog.lake"
session = get_session("local[2]", conf={
    "spark.jars": jar,
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": LIGHT,
    "spark.sql.shuffle.partitions": 1,
    catalog: "org.apache.iceberg.spark.SparkCatalog",
    f"{catalog}.type": "hadoop",
    f"{catalog}.warehouse": str(folder / "lake"),
})
session.sql("create namespace lake.market")
follow(session, folder, "lake.market", "iceberg")
"""


def pipeline(mode, names):
    text = f"""
mode = "{mode}"
space = "space.toml"
[[source]]
type = "table"
catalog = "{names}.quotes"
[[subscriptions]]
catalog = "{names}.searches"
"""
    out = f'[[sink]]\ntype = "table"\ncatalog = "{names}.{mode}"\n'
    return text + step("match") + out + (CHECKPOINT if mode == "stream" else "")


def expected(events):
    engine = Engine(Space.from_toml(SPACE))
    for one, text in SEARCHES:
        engine.subscribe(one, text)
    found = engine.match_many([{"price": price, "name": name} for _, price, name in events])
    return sorted((event[0], one) for event, ids in zip(events, found, strict=True) for one in ids)


def pairs(session, name):
    session.catalog.refreshTable(name)  # a stream writes by a session of its own
    rows = session.read.table(name).select("event", "subscription").collect()
    return sorted((row[0], row[1]) for row in rows)


def follow(session, folder, names, form):
    """Answer the events of a table as a batch, and as a stream while it grows."""
    (folder / "space.toml").write_text(SPACE)
    columns = "id long, price double, name string"
    searches = session.createDataFrame(SEARCHES, "id string, filter string")
    searches.write.format(form).saveAsTable(f"{names}.searches")
    session.createDataFrame(EVENTS, columns).write.format(form).saveAsTable(f"{names}.quotes")
    load(folder, pipeline("batch", names)).run(session)
    assert pairs(session, f"{names}.batch") == expected(EVENTS)
    replacing = pipeline("batch", names).replace(
        '"table"\ncatalog', '"table"\nreplace = true\ncatalog'
    )
    load(folder, replacing.replace("replace = true\n", "", 1)).run(session)
    assert pairs(session, f"{names}.batch") == expected(EVENTS)
    load(folder, pipeline("stream", names)).run(session)
    assert pairs(session, f"{names}.stream") == expected(EVENTS)
    more = session.createDataFrame(MORE, columns).write.format(form).mode("append")
    more.saveAsTable(f"{names}.quotes")
    load(folder, pipeline("stream", names)).run(session)
    assert pairs(session, f"{names}.stream") == expected(EVENTS + MORE)


def test_tables_of_sparks_own_catalog(spark, tmp_path):
    spark.sql(f"create database shop location '{tmp_path / 'shop'}'")
    try:
        follow(spark, tmp_path, "shop", "parquet")
        text = pipeline("batch", "shop").replace("shop.quotes", "shop.quote")
        with pytest.raises(UsageError, match=r"shop.quote: can't be read by Spark: "):
            load(tmp_path, text).run(spark)
    finally:
        spark.sql("drop database shop cascade")


def test_a_source_is_named_in_one_way(tmp_path):
    (tmp_path / "space.toml").write_text(SPACE)
    text = pipeline("batch", "shop").replace('"table"\n', '"table"\nformat = "delta"\n', 1)
    with pytest.raises(FileError, match=r"source\[0\].format: give either a format or a name"):
        load(tmp_path, text)


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.process
def test_tables_of_iceberg(tmp_path):
    """A source, a set and sinks, batch and stream, in a catalog that Iceberg's jar brings.

    `make test-spark-versions` runs it with the Spark that the jar is for.
    """
    version = ".".join(pyspark.__version__.split(".")[:2])
    if version != "4.1":
        pytest.skip(f"{ICEBERG} is for Spark 4.1, and this is {version}: its classes don't fit")
    try:
        (jar,) = jars("iceberg", ICEBERG)
    except Unavailable as error:
        pytest.skip(f"{ICEBERG}: {error}")
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path), str(jar)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
