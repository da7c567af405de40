"""`rangecast demo`: the market example on Spark from beginning to end, with an HTML page.

In the folder that it writes:

    data/events.parquet/        quotes, made on Spark
    data/subscriptions.parquet  the saved searches
    data/changed.parquet        the searches of the second version, halfway through the stream
    data/space.toml
    batch.parquet/              what the batch job found: event, subscriptions
    best.parquet/               the best searches of each quote: event, rank, subscription, score
    stream/                     what the stream found, a folder a micro-batch
    versions/                   the searches as the stream had them, a snapshot a version
    checkpoint/                 how far the stream is: Spark's own
    report.html
    .rangecast-demo             says that all this is a demo's, for the next one to replace
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rangecast.cli.shared.options import Master, Seed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rangecast.cli.commands.spark.demo_prepare import Compiler, Searches
    from rangecast.cli.shared.run import Run
    from rangecast.model.boxes import Boxes
    from rangecast.model.space import Space
    from rangecast.report.facts import EventRanking, MicroBatch, Proof, Stage
    from rangecast.report.tally import Tally
    from rangecast.spark import Prepared

_WRITTEN = (
    *("data", "batch.parquet", "best.parquet"),
    *("stream", ".stream.staging", "versions", "checkpoint"),
)
_PAGE = "report.html"
_MARK = ".rangecast-demo"
_MICRO_BATCHES = 10
_QUICK = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
_FEW = 400_000
"""Number of quotes up to which Java's second compiler costs more than it gains: measured, it costs
23 s of a core and gains 9 s per 200,000 quotes.
"""


def demo(
    subscriptions: Annotated[
        int, typer.Option("--subscriptions", min=1, help="Number of saved searches.")
    ] = 10_000,
    events: Annotated[int, typer.Option("--events", min=1, help="Number of quotes.")] = 200_000,
    seed: Seed = 1,
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write.")] = Path(
        "out"
    ),
    master: Master = None,
) -> None:
    """Generate the market example on Spark; match it as batch and stream, rank, cover, verify all.

    The result is an HTML page, report.html. Files of an earlier demo in the folder are replaced.

    \b
    Examples:
      rangecast demo --events 200000 --subscriptions 10000 -o out
    """
    from rangecast.cli.commands.spark.demo_prepare import Compiler
    from rangecast.cli.shared.run import Run

    with Run.started(pictures=[output / _PAGE]) as run:
        made = _Demo(run, output, subscriptions, events, seed)
        made.clear()
        made.compiler = Compiler(subscriptions, seed)
        with made.step("Start Spark", "and compile the kernels in the meantime"):
            session = run.spark(master, _QUICK if events <= _FEW else None)
        beside = ThreadPoolExecutor(1)
        try:
            made.all(session, beside)
        finally:
            beside.shutdown(cancel_futures=True)
    if not all(proof.holds for proof in made.proofs):
        raise typer.Exit(1)


@dataclass
class _Demo:
    """One run of the demo: its options, and its results for the page."""

    run: Run
    output: Path
    subscriptions: int
    events: int
    seed: int
    stages: list[Stage] = field(default_factory=list)
    stream: list[MicroBatch] = field(default_factory=list)
    proofs: list[Proof] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)
    changes: str = ""
    compiler: Compiler = field(init=False)

    def clear(self) -> None:
        """Remove the files of an earlier run; reject a folder with other files."""
        import shutil

        from rangecast.errors import FileError
        from rangecast.workloads.market import market_space

        mark = self.output / _MARK
        if not mark.exists() and self.output.is_dir() and any(self.output.iterdir()):
            raise FileError(
                f"{self.output}: is not empty and has no earlier demo in it; choose another "
                "folder with -o"
            )
        for name in _WRITTEN:
            shutil.rmtree(self.output / name, ignore_errors=True)
        (self.output / _PAGE).unlink(missing_ok=True)
        try:
            self.output.mkdir(parents=True, exist_ok=True)
            mark.touch()
            self.data.mkdir()
        except OSError as error:
            raise FileError(f"{self.output}: can't be written: {error.strerror}") from None
        market_space().save(self.data / "space.toml")

    @property
    def data(self) -> Path:
        return self.output / "data"

    @property
    def quotes(self) -> Path:
        return self.data / "events.parquet"

    @property
    def best(self) -> Path:
        return self.output / "best.parquet"

    @contextmanager
    def step(self, name: str, doing: str = "", *, events: int = 0) -> Iterator[None]:
        """Print the current step, and record its duration."""
        from rangecast.report.facts import Stage

        self.run.say(f"{len(self.stages) + 1}. {name}{': ' * bool(doing)}{doing}")
        began = time.perf_counter()
        yield
        self.stages.append(Stage(name, time.perf_counter() - began, events))
        self.run.say(f"   {self.stages[-1].seconds:.1f} s")

    def all(self, session: SparkSession, beside: Executor) -> None:
        """Run all steps; `beside` verifies and counts in another thread while Spark works."""
        from rangecast.cli.commands.spark.demo_prepare import Searches
        from rangecast.cli.commands.spark.demo_rank import K, rank_batch, some_best, verify_ranks
        from rangecast.cli.commands.spark.demo_verify import prove_matches

        with self.step("Generate", f"{self.events:,} quotes, {self.subscriptions:,} searches"):
            making = beside.submit(Searches.generate, self.subscriptions, self.seed)
            self.generate(session)
            space, _, boxes, _, changed = searches = making.result()
            self.write(searches)
        with self.step("Index", "build an index over the searches, shared by all workers"):
            self.compiler.wait()
            prepared = self.prepare(session, boxes, space)
        with self.step("Batch", "match every quote with every search", events=self.events):
            self.match_batch(session, prepared, space)
        matches = partial(prove_matches, self.run.in_background(), self.quotes, space)
        file, result = self.data / "subscriptions.parquet", self.output / "batch.parquet"
        batch = beside.submit(matches, "Batch", file, result)
        counting = beside.submit(self.count, boxes, space)
        with self.step("Stream", "the same, while the searches change halfway", events=self.events):
            self.match_stream(session, boxes, changed, space)
        with self.step("Rank", f"rank the {K} best searches of every quote", events=self.events):
            self.compiler.wait()
            rank_batch(session, self.quotes, boxes, space, self.best)
        ranks = beside.submit(verify_ranks, self.quotes, boxes, space, self.best)
        with self.step("Verify", "compare everything with the local engine, event by event"):
            stream = matches("Stream", self.output / "versions", self.output / "stream")
            for proof, text in (batch.result(), stream, ranks.result()):
                self.run.say(f"   {text}")
                self.proofs.append(proof)
        with self.step("Cover", "find the searches that others make redundant"):
            self.facts["Covered"] = self.cover(boxes)
            self.run.say(f"   {self.facts['Covered']}")
        with self.step("Report", "write a page with the results"):
            counted = counting.result()
            best = some_best(self.quotes, self.best, counted)
            self.write_page(session, counted, best)
        self.print_summary(counted, best)

    def generate(self, session: SparkSession) -> None:
        """Write the quotes with Spark."""
        from rangecast.spark.generate import market_events

        quotes = market_events(session, self.events, seed=self.seed, partitions=_MICRO_BATCHES)
        quotes.write.parquet(str(self.quotes))

    def write(self, searches: Searches) -> None:
        """Write the searches of both versions."""
        from rangecast.model.io.writer import write_table

        write_table(searches.table, self.data / "subscriptions.parquet")
        write_table(searches.changed, self.data / "changed.parquet")

    def prepare(self, session: SparkSession, boxes: Boxes, space: Space) -> Prepared:
        """Build the index."""
        from rangecast.spark import prepare_match

        prepared = prepare_match(session, boxes, space)
        megabytes = prepared.memory / 1e6
        self.facts["Index"] = f"{prepared.choice.name}: {prepared.choice.why}"
        self.facts["Memory of the index"] = f"{megabytes:,.1f} MB, mapped by all workers of a host"
        return prepared

    def match_batch(self, session: SparkSession, prepared: Prepared, space: Space) -> None:
        """Match in a batch job."""
        from rangecast.spark import match

        quotes = session.read.parquet(str(self.quotes))
        matches = match(quotes, prepared, space, output="arrays")
        matches.write.parquet(str(self.output / "batch.parquet"))

    def match_stream(
        self, session: SparkSession, boxes: Boxes, changed: Boxes, space: Space
    ) -> None:
        """Match as a stream, one file per micro-batch; halfway a new version is committed."""
        from rangecast.cli.commands.spark.demo_prepare import ADDED, DROPPED
        from rangecast.cli.shared.progress import StreamProgress
        from rangecast.report.facts import MicroBatch
        from rangecast.spark import Folder, MatchStep, VersionedSet, run_stream
        from rangecast.spark.stream.batch import BatchOutcome
        from rangecast.store import Versions

        versions = Versions(self.output / "versions")
        versions.commit(boxes, space)
        folder = str(self.quotes)
        files = len(list(Path(folder).glob("part-*")))
        quotes = session.readStream.schema(session.read.parquet(folder).schema)
        half = files // 2  # of a single file there is no half: nothing changes then

        def report(done: BatchOutcome) -> None:
            self.stream.append(MicroBatch(done.events, done.matches, done.seconds, done.version))
            progress.add_batch(done)
            if len(self.stream) == half:
                versions.commit(changed, space)
                self.changes = (
                    f"Version 2 of the searches drops one in {DROPPED} and adds one for every "
                    f"{ADDED}: {boxes.rows:,} become {changed.rows:,}."
                )

        results = Folder(self.output / "stream")
        matching = MatchStep(VersionedSet(versions, space), [results], output="arrays")
        with StreamProgress(self.run) as progress:
            run_stream(
                quotes.option("maxFilesPerTrigger", 1).parquet(folder),
                [matching],
                checkpoint=self.output / "checkpoint",
                report=report,
            )
        if sum(batch.events for batch in self.stream) < self.events:  # Ctrl-C ends a stream
            raise typer.Abort

    def cover(self, boxes: Boxes) -> str:
        """Count the covered searches; verify some of them against all others."""
        from rangecast.cli.commands.spark.demo_verify import is_right
        from rangecast.cover.warmup import at_hand

        above = at_hand(boxes)(boxes)
        if not is_right(boxes, above):
            raise RuntimeError(
                "the covered searches differ from those found by comparing all pairs"
            )
        return (
            f"{int((above >= 0).sum()):,} of {boxes.rows:,} searches are covered by another one, "
            "which matches everything that they match"
        )

    def count(self, boxes: Boxes, space: Space) -> Tally:
        """Count the numbers of the page, from the batch's result."""
        from rangecast.model.encoding.events import EventFile
        from rangecast.model.io.files import read_tables
        from rangecast.report.tally import tally

        quotes = EventFile(self.quotes, space)
        tables = read_tables(self.output / "batch.parquet")
        return tally(quotes, boxes, space, tables, map_of=("pe", "risk"))

    def write_page(
        self, session: SparkSession, counted: Tally, best: Sequence[EventRanking]
    ) -> None:
        """Write the page."""
        from rangecast.report.facts import MatchReport
        from rangecast.report.match import match_page

        report = MatchReport(
            title="A day of quotes against saved searches",
            lead=f"{self.events:,} quotes of one trading day, matched with {self.subscriptions:,} "
            "saved searches on Spark: as a batch, and as a stream while the searches changed; "
            "then ranked, for the best searches of each quote.",
            per_event=counted.per_event,
            per_subscription=counted.per_subscription,
            busiest=counted.busiest(10),
            idle=counted.idle(4),
            best=best,
            over_time=counted.over_time(),
            by_value=counted.by_value(),
            region=counted.region(),
            stages=self.stages,
            stream=self.stream,
            changes=self.changes,
            proofs=self.proofs,
            facts=self.facts | _machine(session),
            foot=f"rangecast demo --events {self.events} --subscriptions {self.subscriptions} "
            f"--seed {self.seed}",
        )
        from rangecast.model.io.atomic import write_whole

        write_whole(self.output / _PAGE, match_page(report).encode())

    def print_summary(self, counted: Tally, best: Sequence[EventRanking]) -> None:
        """Print a summary with tables."""
        from rich.console import Console
        from rich.table import Table

        shown = Console(highlight=False)
        table = Table(title="The busiest searches")
        for heading, side in (("search", "left"), ("matches", "right"), ("filter", "left")):
            table.add_column(heading, justify=side)  # type: ignore[arg-type]
        for subscription in counted.busiest(5):
            table.add_row(
                subscription.subscription, f"{subscription.matches:,}", subscription.filter
            )
        shown.print(table)
        if best:
            table = Table(title=f"The best searches for {best[0].event}")
            for heading, side in (("search", "left"), ("score", "right"), ("filter", "left")):
                table.add_column(heading, justify=side)  # type: ignore[arg-type]
            for name, score, text in best[0].best:
                table.add_row(name, f"{score:g}", text)
            shown.print(table)
        unwanted = int((counted.per_event == 0).sum())
        answered = int((counted.per_subscription > 0).sum())
        verdict = "correct" if all(proof.holds for proof in self.proofs) else "incorrect, see above"
        matches = int(counted.per_event.sum())
        shown.print(
            f"{self.events:,} quotes, {matches:,} matches; {unwanted:,} quotes matched "
            f"nothing; {answered:,} of {self.subscriptions:,} searches had matches.\n"
            f"Batch, stream and ranks, compared with the local engine: {verdict}.\n"
            f"Look at: {self.output / _PAGE}\n"
            f"Results: {self.output / 'batch.parquet'}, {self.output / 'stream'}, {self.best}",
            markup=False,
            soft_wrap=True,
        )


def _machine(session: SparkSession) -> dict[str, str]:
    """Return a description of the machine."""
    import os
    import platform

    jvm: Any = session.sparkContext._jvm
    return {
        "Spark": f"{session.version} on {session.sparkContext.master}, "
        f"Java {jvm.System.getProperty('java.version')}",
        "Python": platform.python_version(),
        "Machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}",
    }
