"""Streams that end at each step of the protocol: nothing lost, nothing twice.

Between an end and the restart the subscriptions change: what was pinned keeps its version. The
answers go to a folder and to a Delta table. `make kills KILLS=50` ends each run by kill -9, at
each step and at random moments.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import partial

import pytest
from deltalake import DeltaTable

from rangecast.store.commits import commits, read_committed
from rangecast.store.versions import Versions
from tests import ROOT
from tests.support.stream_driver import run

STEPS = ["begun", "pinned", "staged", "rejected rows committed", "committed"]
ROWS = 6


def price(file, row):
    return file * 3 + row * 5


def write_events(folder, files):
    folder.mkdir()
    for file in range(files):
        rows = [{"id": f"e{file}-{row}", "price": price(file, row)} for row in range(ROWS)]
        rows.append({"id": f"bad{file}", "price": "dear"})
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{file}.json").write_text(text)
        os.utime(folder / f"{file}.json", (file, file))  # the order in which they are taken


def edit(number):
    """The number-th change: (op, id, bound). Half of the answers change with each."""
    if number == 1:
        return [("subscribe", "low", 20), ("subscribe", "high", 30)]
    return [("replace", "low" if number % 2 else "high", 10 + 3 * number)]


def add_edits(folder, number):
    folder.mkdir(exist_ok=True)
    lines = [
        {"id": one, "op": op, "filter": f"price <= {bound}"} for op, one, bound in edit(number)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / f"_{number}").write_text(text)
    (folder / f"_{number}").rename(folder / f"{number}.jsonl")


def expected(file, version):
    """The answers to a file's events by the first `version` changes, worked out by hand."""
    bounds = {one: bound for number in range(version) for _, one, bound in edit(number + 1)}
    return {
        f"e{file}-{row}": [one for one, bound in bounds.items() if price(file, row) <= bound]
        for row in range(ROWS)
    }


def drive(folder, *deadly, kill_at=None):
    """Run the stream until it ends or is killed; return the steps that it reported.

    `kill_at`: kill it so many seconds after so many steps.
    """
    command = [sys.executable, "-m", "tests.support.stream_driver", str(folder), *map(str, deadly)]
    log = folder / "stderr.txt"
    with (
        log.open("a") as errors,
        subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True,
            start_new_session=True,
        ) as process,
    ):  # fmt: skip
        assert process.stdout is not None
        steps = []
        for line in process.stdout:
            steps.append(line.strip())
            if kill_at is not None and len(steps) == kill_at[0]:
                time.sleep(kill_at[1])
                os.killpg(process.pid, signal.SIGKILL)
    killed = process.returncode == -signal.SIGKILL
    assert killed or process.returncode == 0, log.read_text()
    return steps


class CrashError(Exception):
    """Ends a stream in this process, as a kill would."""


def test_after_an_end_at_every_step_the_answers_are_those_of_a_batch(spark, tmp_path):
    def end_at(deadly):
        seen = Counter()

        def watch(step):
            seen[step] += 1
            if step == deadly and seen[step] == 2:  # the second batch of each run
                raise CrashError

        if deadly is None:
            run(spark, tmp_path, watch)
        else:
            with pytest.raises(CrashError):
                run(spark, tmp_path, watch)

    check(tmp_path, [*STEPS, None], end_at)


@pytest.mark.soak
@pytest.mark.spark
def test_after_a_kill_the_answers_are_those_of_a_batch(tmp_path):
    check(tmp_path, ["begun", None], partial(kill_at, tmp_path))


@pytest.mark.soak
@pytest.mark.spark
def test_killed_at_every_step_and_at_random_the_answers_are_those_of_a_batch(tmp_path):
    dice = random.Random()
    kills = int(os.environ.get("KILLS", "5"))
    moments = [(dice.randint(1, 8), dice.uniform(0, 0.5)) for _ in range(kills)]
    print("random moments:", moments)
    check(tmp_path, [*STEPS, *moments, None], partial(kill_at, tmp_path))


def kill_at(folder, deadly):
    if isinstance(deadly, str):
        assert drive(folder, deadly, 2)[-1] == deadly  # the second batch of each run
    elif deadly is not None:
        drive(folder, kill_at=deadly)
    else:
        assert drive(folder)[-1] == "ended"


def check(tmp_path, ends, end_at):
    """Run a stream that ends so, each time with other subscriptions; the last run ends well."""
    files = len(ends) + 1
    write_events(tmp_path / "events", files)
    versions = Versions(tmp_path / "versions")
    pins: dict[int, int] = {}
    for edits, deadly in enumerate(ends, start=1):
        add_edits(tmp_path / "edits", edits)
        end_at(deadly)
        for (_, batch), version in versions.pinned().items():
            assert pins.setdefault(batch, version) == version, "a pin has changed"

    assert pins[1] == 2, "it ended before its pin: the newest version answers it"

    # A batch is a file, or two of them if Spark was killed between two of its own logs.
    marks = commits(tmp_path / "matches")
    assert [mark["batch"] for mark in marks] == list(range(len(marks)))
    steps = sum(isinstance(deadly, str) for deadly in ends)
    assert len(marks) > steps
    answered = {mark["batch"]: mark["version"] for mark in marks}
    # Old pins are forgotten; one that came and went within a run was never seen here.
    assert {batch: answered[batch] for batch in pins} == pins
    assert len(set(pins.values())) > steps, "the subscriptions changed on the way"
    answers = read_committed(tmp_path / "matches").to_table().to_pylist()
    assert len(answers) == files * ROWS
    found = {row["event"]: (row["batch"], row["subscriptions"]) for row in answers}
    for file in range(files):
        batch, _ = found[f"e{file}-0"]
        wanted = expected(file, answered[batch])
        assert {event: found[event] for event in wanted} == {
            event: (batch, subscriptions) for event, subscriptions in wanted.items()
        }
    table = DeltaTable(tmp_path / "table").to_pyarrow_table().to_pylist()
    assert len(table) == len(answers)
    assert {row["event"]: row["subscriptions"] for row in table} == {
        event: subscriptions for event, (_, subscriptions) in found.items()
    }
    bad = read_committed(tmp_path / "bad").to_table().to_pylist()
    assert {row["event"]: row["batch"] for row in bad} == {
        f"bad{file}": found[f"e{file}-0"][0] for file in range(files)
    }
    assert len(bad) == files
