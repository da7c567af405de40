"""`--as-of` of match, rank and count: the answers of a set replayed up to a version or a time."""

from __future__ import annotations

import csv
import io
import json
import random
from datetime import UTC, datetime, timedelta

import pytest

from rangecast import Engine, Number, Space
from rangecast.errors import SnapshotError
from rangecast.store import Edits, Versions

SPACE = Space([Number("price"), Number("size")])
START = datetime(2026, 1, 31, 9, 0, tzinfo=UTC)
EVENTS = [(float(price), float(size)) for price in range(0, 20, 3) for size in (2, 9)]
Bounds = tuple[float, float, float]
"""Of a plain subscription: the lowest and the highest price, and its score; any size."""


@pytest.fixture
def clock(monkeypatch):
    """Set the clock of commits, in minutes after the start."""

    def moved(minutes: float) -> None:
        nanos = int((START + timedelta(minutes=minutes)).timestamp()) * 10**9
        monkeypatch.setattr("rangecast.store.versions.time.time_ns", lambda: nanos)

    return moved


@pytest.fixture
def replays(tmp_path, clock) -> list[dict[str, Bounds]]:
    """Commit edits, one version every ten minutes; return the plain sets after each."""
    rng = random.Random(4)
    SPACE.save(tmp_path / "space.toml")
    with (tmp_path / "events.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("price", "size"), *EVENTS])
    versions, folder = Versions(tmp_path / "versions", few=6), tmp_path / "edits"
    folder.mkdir()
    edits = Edits(folder, versions, SPACE)
    replayed: dict[str, Bounds] = {}
    after: list[dict[str, Bounds]] = []
    for number in range(1, 8):
        lines = []
        for _ in range(rng.randrange(1, 7)):
            name = rng.choice("abcdefgh")
            if name in replayed and rng.random() < 0.4:
                del replayed[name]
                lines.append({"id": name, "op": "unsubscribe"})
                continue
            lo = rng.randrange(15)
            hi, score = lo + rng.randrange(8), rng.randrange(100)
            replayed.pop(name, None)
            replayed[name] = (lo, hi, score)
            lines.append(
                {
                    "id": name,
                    "op": "upsert",
                    "filter": f"price between {lo} and {hi}",
                    "score": score,
                }
            )
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"{number}.jsonl").write_text(text)
        clock(10 * number)
        assert edits.apply() == number
        after.append(dict(replayed))
    return after


def expected(plain: dict[str, Bounds], price: float) -> list[str]:
    return [name for name, (lo, hi, _) in plain.items() if lo <= price <= hi]


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def check(cli, plain: dict[str, Bounds], *as_of: str) -> None:
    """Compare match, rank and count with a plain set."""
    files = ("events.csv", "versions", "--space", "space.toml", *as_of)
    matched = {(row["event"], row["subscription"]) for row in rows(cli("match", *files).stdout)}
    counts = [int(row["count"]) for row in rows(cli("count", *files).stdout)]
    best = rows(cli("rank", *files, "--top", 1).stdout)
    for event, (price, _) in enumerate(EVENTS):
        names = expected(plain, price)
        assert {name for number, name in matched if number == str(event)} == {*names}
        assert counts[event] == len(names)
        top = [float(row["score"]) for row in best if row["event"] == str(event)]
        assert top == ([max(plain[name][2] for name in names)] if names else [])


@pytest.mark.parametrize("version", [1, 4, 7])
def test_answers_are_those_of_a_set_replayed_up_to_then(cli, replays, version):
    plain = replays[version - 1]
    check(cli, plain, "--as-of", str(version))
    check(cli, plain, "--as-of", (START + timedelta(minutes=10 * version)).isoformat())
    check(cli, plain, "--as-of", (START + timedelta(minutes=10 * version + 9)).isoformat())


def test_the_newest_version_is_the_default_and_the_summary_names_another(cli, replays):
    check(cli, replays[-1])
    files = ("events.csv", "versions", "--space", "space.toml", "-o", "out.csv", "--json")
    for command in ("match", "rank", "count"):
        facts = json.loads(cli(command, *files, "--as-of", "2026-01-31T10:05Z").stdout)
        assert facts["version"] == 6
        assert json.loads(cli(command, *files).stdout)["version"] is None


def test_what_was_never_there_is_rejected(cli, replays, tmp_path):
    files = ("events.csv", "versions", "--space", "space.toml")
    done = cli("match", *files, "--as-of", "9", code=2)
    assert "has no version 9; it has [1, 2, 3, 4, 5, 6, 7]" in done.stderr
    done = cli("count", *files, "--as-of", "2026-01-31T09:05Z", code=2)
    assert "has no version of 2026-01-31T09:05:00Z; version 1 is of" in done.stderr
    done = cli("rank", *files, "--as-of", "yesterday", code=2)
    assert "must be the number of a version, or an ISO 8601 timestamp" in done.stderr
    (tmp_path / "subscriptions.csv").write_text("id,filter\n1,true\n")
    done = cli("match", files[0], "subscriptions.csv", *files[2:], "--as-of", "1", code=2)
    assert "--as-of 1 requires a folder of versions, which subscriptions.csv" in done.stderr


def test_tracked_objects_are_matched_as_of_then_too(cli, tmp_path, clock):
    (tmp_path / "space.toml").write_text(
        '[[attribute]]\nname = "at"\ntype = "timestamp"\n\n'
        '[[attribute]]\nname = "price"\ntype = "number"\n'
    )
    (tmp_path / "events.csv").write_text("stock,at,price\nx,2026-01-31T09:00:00Z,5\n")
    engine, versions = Engine(Space.load(tmp_path / "space.toml")), Versions(tmp_path / "versions")
    for minutes, name in enumerate("ab"):
        clock(minutes)
        engine.subscribe(name, "price > 1")
        versions.commit(engine.boxes(), engine.space)
    files = ("events.csv", "versions", "--space", "space.toml", "--track", "stock")
    for as_of, names in (((), "ab"), (("--as-of", "1"), "a")):
        entered = [row["subscription"] for row in rows(cli("match", *files, *as_of).stdout)]
        assert sorted(entered) == list(names)


def test_times_never_go_back_and_pruned_versions_are_not_guessed(tmp_path, clock):
    engine, versions = Engine(SPACE), Versions(tmp_path / "versions")
    for minutes, price in ((10, 1), (5, 2), (20, 3), (30, 4)):  # the clock is set back once
        clock(minutes)
        engine.upsert("a", f"price < {price}")
        versions.commit(engine.boxes(), SPACE)
    minutes = [(versions.committed_at(v) - START) / timedelta(minutes=1) for v in versions.all()]
    assert minutes == [10, 10, 20, 30]
    assert [versions.at(START + timedelta(minutes=m)) for m in (10, 19, 20, 99)] == [2, 2, 3, 4]
    assert versions.at(datetime(2026, 1, 31, 9, 20)) == 3
    versions.pin("a stream", 0)
    clock(40)
    engine.upsert("a", "price < 9")
    versions.commit(engine.boxes(), SPACE)
    clock(50)
    engine.upsert("a", "price < 10")
    versions.commit(engine.boxes(), SPACE)
    assert versions.prune(keep=1) == [1, 2, 3, 5]
    assert versions.at(START + timedelta(minutes=30)) == 4
    with pytest.raises(SnapshotError, match="may have been pruned: between 4 and 6"):
        versions.at(START + timedelta(minutes=45))
    with pytest.raises(SnapshotError, match=r"has no version of .*; version 4 is of"):
        versions.at(START)
    engine.save(tmp_path / "versions" / "000007")
    with pytest.raises(SnapshotError, match="wasn't committed but saved"):
        versions.at(START)
