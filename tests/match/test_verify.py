"""`rangecast verify`: every way in which a result can be wrong is found, and none is made up."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast.errors import FileError
from rangecast.kernels import ahead
from rangecast.match import warmup
from rangecast.match.verification import claims
from rangecast.match.verification.verify import verify
from rangecast.model.encoding.events import encode_events
from rangecast.model.encoding.subscriptions import encode_subscriptions
from rangecast.model.sets.ids import Places
from rangecast.model.snapshot import save_boxes
from rangecast.model.space import Space
from rangecast.store.commits import CommittedFolder
from rangecast.store.edits import Edits
from rangecast.store.versions import Versions
from rangecast.workloads import generate
from tests.support.examples import examples

SPACE = """
[[attribute]]
name = "x"
type = "integer"
[[attribute]]
name = "who"
type = "string"
"""


def space():
    return Space.from_toml(SPACE)


def subscriptions(**filters):
    return encode_subscriptions(
        pa.table({"id": list(filters), "filter": list(filters.values())}), space_of := space()
    ), space_of


FIRST = {"low": "x < 3", "ann": "who = 'ann'", "all": "true"}
SECOND = {"all": "x >= 0", "bob": "who = 'bob'", "low": "x < 1"}
EVENTS = pa.table({"id": [10, 11, 12, 13], "x": [0, 2, 5, -1], "who": ["ann", "bob", None, "bob"]})
ANSWER = [
    (10, "low"), (10, "ann"), (10, "all"), (11, "low"), (11, "all"), (12, "all"),
    (13, "low"), (13, "all"),
]  # fmt: skip


def events(fixed):
    return [encode_events(EVENTS.slice(0, 3), fixed), encode_events(EVENTS.slice(3), fixed)]


def pairs(rows):
    event, subscription = zip(*rows, strict=True)
    return pa.record_batch({"event": list(event), "subscription": list(subscription)})


def lists(rows):
    found = {}
    for event, subscription in rows:
        found.setdefault(event, []).extend([subscription] if subscription else [])
    kind = pa.list_(pa.string())
    return pa.record_batch(
        {"event": list(found), "subscriptions": pa.array(list(found.values()), kind)}
    )


def test_a_result_is_verified_before_kernels_are_compiled(monkeypatch):
    def built(*_):
        raise AssertionError("this would wait for kernels")

    monkeypatch.setattr(warmup, "build", built)
    monkeypatch.setattr(ahead, "must_wait", lambda *_: True)
    assert judged(pairs(ANSWER)).holds
    assert judged(pairs(ANSWER[1:])).missing_pairs == 1


def judged(*batches, sets=None, show=5):
    return verify(events, sets or {0: subscriptions(**FIRST)}, batches, show=show)


def kinds(verdict):
    return {what: count for what, count in verdict.differences().items() if count}


@pytest.mark.parametrize("form", [pairs, lists])
def test_the_right_answer_holds_in_any_order_and_in_any_pieces(form):
    verdict = judged(form(ANSWER))
    assert verdict.holds
    assert (verdict.events, verdict.pairs, verdict.samples) == (4, 8, [])
    assert judged(form(ANSWER[::-1])).holds
    assert judged(form(ANSWER[5:]), form(ANSWER[:5])).holds


def test_ids_may_be_written_as_texts():
    texts = pairs([(str(event), subscription) for event, subscription in ANSWER])
    assert judged(texts).holds


def test_what_is_missing_extra_or_twice_is_named():
    wrong = [(10, "bob"), *ANSWER[1:], (12, "low"), (11, "all"), (11, "all")]
    sets = {0: subscriptions(**FIRST, bob="who = 'bob' and x > 2")}
    verdict = judged(pairs(wrong), sets=sets)
    assert kinds(verdict) == {
        "pairs missing": 1,
        "pairs that don't match": 2,
        "duplicate pairs": 2,
    }
    assert verdict.differing_events == 3
    assert verdict.samples == [
        (10, ["low"], ["bob"], []),
        (11, [], [], ["all"]),
        (12, [], ["low"], []),
    ]
    assert str(verdict.samples[0]) == "event 10: missing: low; not a match: bob"
    assert judged(pairs(wrong), sets=sets, show=1).samples == verdict.samples[:1]


def test_unknown_ids_are_differences():
    verdict = judged(pairs([*ANSWER, (99, "all"), (10, "nobody")]))
    assert kinds(verdict) == {
        "rows with an unknown event": 1,
        "pairs with an unknown subscription": 1,
    }
    assert verdict.others == ["event 99", "subscription nobody"]


def test_lists_have_a_row_for_every_event_or_for_none_without_matches():
    sets = {0: subscriptions(low="x < 3")}
    right = [(10, "low"), (11, "low"), (13, "low")]
    assert judged(lists(right), sets=sets).holds  # 12 matches nothing
    assert judged(lists([*right, (12, None)]), sets=sets).holds
    sets = {0: subscriptions(low="x < 0")}
    assert judged(lists([(13, "low")]), sets=sets).holds
    verdict = judged(lists([(13, "low"), (10, None), (11, None)]), sets=sets)
    assert kinds(verdict) == {"events without a row": 1}
    assert verdict.others == ["event 12 has no row"]
    some = lists([(10, None), (11, None), (12, None), (13, "low")])
    verdict = judged(some, some.slice(1, 1), sets=sets)
    assert kinds(verdict) == {"events with several rows": 1}


def versioned(rows):
    batch = pairs([row[:2] for row in rows])
    return batch.append_column("version", pa.array([row[2] for row in rows]))


def test_each_event_is_judged_by_the_version_that_answered_it():
    sets = {1: subscriptions(**FIRST), 2: subscriptions(**SECOND)}
    right = [(10, "low", 1), (10, "ann", 1), (10, "all", 1), (11, "all", 2), (11, "bob", 2)]
    right += [(12, "all", 2), (13, "low", 2), (13, "bob", 2)]
    assert judged(versioned(right), sets=sets).holds
    verdict = judged(versioned([*right[:3], *((e, s, 1) for e, s, _ in right[3:])]), sets=sets)
    assert kinds(verdict) == {"pairs missing": 2, "pairs that don't match": 2}
    verdict = judged(versioned([(*right[0][:2], 2), *right[1:]]), sets=sets)
    assert kinds(verdict) == {"events with several versions": 1}
    verdict = judged(versioned(right[:5] + right[6:]), sets=sets)
    assert kinds(verdict) == {"events without a row": 1}  # 12 matches in both versions
    for wrong, said in ((pairs(ANSWER), "no column 'version'"), (versioned([(1, "a", 7)]), "n 7;")):
        with pytest.raises(FileError, match=said):
            judged(wrong, sets=sets)


def test_an_absent_event_is_right_if_some_version_has_nothing_for_it():
    sets = {1: subscriptions(low="x < 3"), 2: subscriptions(low="x < 100")}
    right = [(10, "low", 1), (11, "low", 1), (13, "low", 2)]
    assert judged(versioned(right), sets=sets).holds
    sets = {1: subscriptions(low="x < 7"), 2: subscriptions(low="x < 100")}
    assert kinds(judged(versioned(right), sets=sets)) == {"events without a row": 1}


def test_a_version_may_be_empty_or_have_ids_of_another_type():
    none = pa.table({"id": pa.array([], pa.int64()), "filter": pa.array([], pa.string())})
    nobody = encode_subscriptions(none, known := space())
    one = encode_subscriptions(pa.table({"id": [7], "filter": ["true"]}), known)
    sets = {1: (nobody, known), 2: subscriptions(low="x < 3"), 3: (one, known)}
    right = [(10, "low", 2), (11, "low", 2), (13, "7", 3)]
    assert judged(versioned(right), sets=sets).holds
    assert kinds(judged(versioned([(10, "low", 1)]), sets=sets)) == {"pairs that don't match": 1}


def test_a_result_needs_its_columns():
    with pytest.raises(FileError, match="found: event, subs"):
        judged(pa.record_batch({"event": [10], "subs": ["low"]}))
    with pytest.raises(FileError, match="must contain lists; found: string"):
        judged(pa.record_batch({"event": [10], "subscriptions": ["low"]}))


def test_nothing_at_all():
    nothing = pairs(ANSWER).slice(0, 0)
    empty = {0: subscriptions(none="x < 0 and x > -1 or x < -5")}
    assert judged(nothing, sets=empty).holds
    assert judged(sets=empty).holds
    assert kinds(judged(nothing)) == {"pairs missing": 8}


@examples(40)
@given(st.data())
def test_any_damage_is_found_across_blocks(data):
    """A block of three events: claims come in any order and go to many files."""
    made = generate("crowded-rectangles", seed=5, subscriptions=40, events=17, width=30, height=30)
    boxes, points, table = made.boxes, made.points, made.tables["events"]
    held = [
        (event, row)
        for event in range(17)
        for row in range(40)
        if ((boxes.lo[row] <= points[event]) & (points[event] <= boxes.hi[row])).all()
    ]
    claimed = data.draw(st.permutations(held))
    gone = data.draw(st.sets(st.sampled_from(held), max_size=3))
    added = data.draw(st.lists(st.tuples(st.integers(0, 16), st.integers(0, 39)), max_size=3))
    claimed = [pair for pair in claimed if pair not in gone] + added
    cut = data.draw(st.integers(0, len(claimed)))
    batches = [pairs(part) for part in (claimed[:cut], claimed[cut:]) if part]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(claims, "BLOCK", 3)
        patch.setattr("rangecast.match.verification.verify.BLOCK", 3)
        verdict = verify(
            lambda fixed: [encode_events(table, fixed)], {0: (boxes, made.space)}, batches, show=99
        )
    assert verdict.pairs == len(held)
    assert verdict.missing_pairs == len(set(held) - set(claimed))
    assert verdict.extra_pairs == len(set(claimed) - set(held))
    assert verdict.pairs_twice == len(claimed) - len(set(claimed))
    damaged = set(held) ^ set(claimed) | {p for p in claimed if claimed.count(p) > 1}
    assert {sample.event for sample in verdict.samples} == {event for event, _ in damaged}
    assert verdict.holds == (sorted(claimed) == sorted(held))


@given(st.lists(st.integers(-5, 5), unique=True), st.lists(st.integers(-7, 7)))
def test_places(known, asked):
    expected = [known.index(each) if each in known else -1 for each in asked]
    for kinds_of in (pa.int64(), pa.string()):
        have = pa.array(known, pa.int64()).cast(kinds_of)
        for form in (pa.int64(), pa.string()):
            want = pa.array(asked, pa.int64()).cast(form)
            assert Places(have).find(want).tolist() == expected
    mixed = pa.array(["x", None, "07", *map(str, asked)])
    assert Places(pa.array(known, pa.int64())).find(mixed).tolist() == [-1, -1, -1, *expected]


# ---------------------------------------------------------------- the shell


def test_the_command_proves_its_own_and_others_results(tmp_path, cli):
    made = generate("market", seed=1, subscriptions=300, events=500)
    made.space.save(tmp_path / "space.toml")
    pq.write_table(made.tables["subscriptions"], tmp_path / "subs.parquet")
    parts = tmp_path / "events"  # as Spark writes it
    parts.mkdir()
    (parts / "_SUCCESS").touch()
    for number, start in enumerate((0, 200)):
        rows = made.tables["events"].slice(start, 200 if not start else None)
        pq.write_table(rows, parts / f"part-{number}.parquet")
    given_ = ("events", "subs.parquet", "m.parquet", "--space", "space.toml")
    cli("match", *given_[:2], *given_[3:], "-o", "m.parquet")
    said = cli("verify", *given_).stderr
    assert "m.parquet: correct: 500 events, " in said
    save_boxes(tmp_path / "snapshot", made.boxes, made.space)
    cli("verify", "events", "snapshot", *given_[2:], "--index", "scan")
    table = pq.read_table(tmp_path / "m.parquet")
    kept = np.delete(np.arange(len(table)), 7)
    pq.write_table(table.take(kept), tmp_path / "m.parquet")
    said = cli("verify", *given_, "--json", code=1).stdout
    facts = json.loads(said)
    assert (facts["holds"], facts["missing_pairs"], facts["pairs"]) == (False, 1, len(table))
    lost = {name: table[name][7].as_py() for name in ("event", "subscription")}
    said = cli("verify", *given_, "--quiet", code=1).stderr
    assert f"event {lost['event']}: missing: {lost['subscription']}" in said
    assert "incorrect: 1 pair missing; 1 of 500 events" in said
    cli("verify", *given_[:2], "no.parquet", *given_[3:], code=2)
    cli("report", *given_, "--map", "pe,risk", "-o", "page.html")
    assert "500 events of events" in (tmp_path / "page.html").read_text(encoding="utf-8")
    for wrong, hint in (("pe,rsk", "did you mean 'risk'"), ("pe", "two attributes")):
        assert hint in cli("report", *given_, "--map", wrong, code=2).stderr


@pytest.mark.parametrize("mark", ["_committed.json", "_done.json"])
def test_the_command_reads_a_streams_versions_wherever_commits_put_them(
    tmp_path, cli, monkeypatch, mark
):
    monkeypatch.setattr("rangecast.store.commits._MARK", mark)
    (tmp_path / "space.toml").write_text(SPACE)
    pq.write_table(EVENTS, tmp_path / "events.parquet")
    for number, filters in ((1, FIRST), (2, SECOND)):
        boxes, fixed = subscriptions(**filters)
        save_boxes(tmp_path / "versions" / f"{number:06}", boxes, fixed)
    batches = [
        [(10, "low"), (10, "ann"), (10, "all")],
        [(11, "all"), (11, "bob"), (12, "all"), (13, "low"), (13, "bob")],
    ]
    in_space = ("--space", "space.toml")
    for stream, versions, code in (("right", (1, 2), 0), ("wrong", (1, 1), 1)):
        with CommittedFolder(tmp_path / stream, "s") as folder:
            for number, rows in enumerate(batches):
                staged = folder.stage(number)
                staged.mkdir()
                pq.write_table(pa.Table.from_batches([pairs(rows)]), staged / "part-0.parquet")
                folder.commit(number, staged, {"version": versions[number]})
        said = cli("verify", "events.parquet", "versions", stream, *in_space, code=code).stderr
        assert ("correct: 4 events, 8 matches" in said) == (code == 0)


@pytest.fixture
def versions(tmp_path):
    """Two versions of a set, the second a layer over the first."""
    (tmp_path / "space.toml").write_text(SPACE)
    pq.write_table(EVENTS, tmp_path / "events.parquet")
    boxes, fixed = subscriptions(**FIRST)
    kept = Versions(tmp_path / "versions")
    kept.commit(boxes, fixed)
    edits = tmp_path / "edits"
    edits.mkdir()
    lines = [{"op": "unsubscribe", "id": "ann"}, {"op": "replace", "id": "low", "filter": "x < 1"}]
    (edits / "1.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    Edits(edits, kept, fixed).apply()
    assert kept.all() == [1, 2]
    for number, rows in ((1, ANSWER), (2, [row for row in ANSWER if row not in GONE])):
        pq.write_table(pa.Table.from_batches([pairs(rows)]), tmp_path / f"{number}.parquet")
    return kept


GONE = [(10, "ann"), (11, "low")]
IN_SPACE = ("--space", "space.toml")


def test_the_command_takes_a_version_the_newest_by_default(tmp_path, cli, versions):
    told = {}
    for given_, version in (((), 2), (("--version", 1), 1), (("--version", 2), 2)):
        for result in (1, 2):
            files = ("events.parquet", "versions", f"{result}.parquet", *IN_SPACE)
            cli("verify", *files, *given_, code=int(result != version))
        cli("report", "events.parquet", "versions", "1.parquet", *IN_SPACE, *given_, "-o", "p.html")
        told[version] = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert "3 subscriptions of versions, version 1" in told[1]
    assert "2 subscriptions of versions, version 2" in told[2]


def test_versions_that_are_not_there_or_that_the_result_contradicts(tmp_path, cli, versions):
    table = pa.Table.from_batches([pairs(ANSWER)])
    labelled = table.append_column("version", pa.array([1] * len(table)))
    pq.write_table(labelled, tmp_path / "labelled.parquet")
    pq.write_table(EVENTS, tmp_path / "subs.parquet")
    files = ("events.parquet", "versions", "labelled.parquet", *IN_SPACE)
    cli("verify", *files)
    cli("verify", *files, "--version", 1)
    said = cli("verify", *files, "--version", 2, code=2).stderr
    assert "the result has rows for version 1; given: --version 2" in said
    for command in ("verify", "report"):
        said = cli(command, *files, "--version", 7, code=2).stderr
        assert "has no version 7; it has [1, 2]" in said
        said = cli(command, files[0], "subs.parquet", *files[2:], "--version", 1, code=2).stderr
        assert "--version 1 requires a folder of versions, which subs.parquet isn't" in said
