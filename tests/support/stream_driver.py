"""A process that runs a stream, and dies when it is told to: `stream_driver FOLDER [STEP TIMES]`.

It kills itself, and the JVM with it, when a step of the protocol is reached for the n-th time.
"""

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from rangecast.model.attributes.base import Number
from rangecast.model.space import Space
from rangecast.spark import get_session
from rangecast.spark.stream.run import run_stream
from rangecast.spark.stream.sets import VersionedSet
from rangecast.spark.stream.sinks.base import Folder
from rangecast.spark.stream.sinks.delta import Delta
from rangecast.spark.stream.sources import Files
from rangecast.spark.stream.steps import MatchStep
from rangecast.store.edits import Edits
from rangecast.store.versions import Versions
from tests.support.server.servers import LIGHT

SPACE = Space([Number("price")])


def run(session: SparkSession, folder: Path, watch: Callable[[str], None]) -> None:
    """Answer the events that lie in a folder, a file of them at a time."""
    versions = Versions(folder / "versions")
    subscriptions = VersionedSet(versions, SPACE, edits=Edits(folder / "edits", versions, SPACE))
    sinks = [Folder(folder / "matches"), Delta(folder / "table")]
    files = Files(str(folder / "events"), "json", options={"maxFilesPerTrigger": 1})
    run_stream(
        files.read(session, SPACE, (), stream=True),
        [MatchStep(subscriptions, sinks, output="arrays")],
        checkpoint=folder / "checkpoint",
        rejected=Folder(folder / "bad"),
        watch=watch,
    )


def main() -> None:
    folder, deadly = Path(sys.argv[1]), sys.argv[2:]
    seen: Counter[str] = Counter()

    def watch(step: str) -> None:
        seen[step] += 1
        print(step, flush=True)
        if [step, str(seen[step])] == deadly:
            os.killpg(0, signal.SIGKILL)

    conf = {"spark.driver.memory": "512m", "spark.driver.extraJavaOptions": LIGHT}
    run(get_session("local[1]", conf=conf), folder, watch)
    print("ended", flush=True)


if __name__ == "__main__":
    main()
