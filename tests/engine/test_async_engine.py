import asyncio
import threading

import pytest

from rangecast import AsyncEngine, Engine, Number, Space, String, UsageError
from rangecast.errors import InvalidValueError


@pytest.fixture
def engine():
    made = Engine(Space([Number("price"), String("symbol")]))
    made.subscribe("cheap", "price < 10")
    made.subscribe("acme", "symbol = 'ACME'")
    return made


def test_each_event_has_its_matches_or_its_error(engine):
    events = [{"price": 5, "symbol": "ACME"}, {"price": "x"}, {"prize": 5}, {"price": 50}, 7]
    found = engine.match_each(events)
    assert [found[0], found[3]] == [["cheap", "acme"], []]
    assert [type(found[i]) for i in (1, 2, 4)] == [InvalidValueError, UsageError, UsageError]
    assert engine.match_each([]) == []
    assert engine.match_each([{"prize": 5}], ignore_unknown=True) == [[]]
    assert engine.match_each({"price": p} for p in (5, 50)) == [["cheap"], []]


def run(engine, events, **options):
    """All answers, or errors, and how many batches it took."""

    async def ask():
        asked = AsyncEngine(engine, **options)
        tasks = (asked.match(event) for event in events)
        return await asyncio.gather(*tasks, return_exceptions=True), asked.batches

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("count", "max_batch", "batches"), [(1, 1024, 1), (100, 1024, 1), (100, 7, 15)]
)
def test_what_waits_is_matched_together(engine, count, max_batch, batches):
    events = [{"price": place} for place in range(count)]
    found, taken = run(engine, events, max_batch=max_batch)
    assert found == [engine.match(event) for event in events]
    assert taken == batches


@pytest.mark.parametrize("count", [3, 50])
def test_a_bad_event_fails_alone(engine, count):
    found, _ = run(engine, [{"price": 1}] * count + [{"price": "x"}])
    assert found[:-1] == [["cheap"]] * count
    assert isinstance(found[-1], InvalidValueError)


@pytest.mark.parametrize("count", [1, 50])
def test_an_error_of_the_set_reaches_everybody_and_the_next_ones_are_answered(
    engine, count, monkeypatch
):
    async def ask():
        asked = AsyncEngine(engine)
        good = asked._ask
        asked._ask = lambda events: 1 / 0
        events = [{"price": 1}] * count
        failed = await asyncio.gather(*map(asked.match, events), return_exceptions=True)
        assert {type(one) for one in failed} == {ZeroDivisionError}
        asked._ask = good
        assert await asked.match({"price": 1}) == ["cheap"]

    asyncio.run(ask())


def test_while_one_batch_runs_the_next_one_gathers_and_a_task_may_give_up(engine):
    async def ask():
        asked, ask, may_go_on = AsyncEngine(engine), engine.match_each, threading.Event()
        has_begun = threading.Event()

        def slow(events):
            has_begun.set()
            assert may_go_on.wait(600)
            return ask(events)

        asked._ask = slow
        first = [asyncio.create_task(asked.match({"price": 1})) for _ in range(20)]
        assert await asyncio.to_thread(has_begun.wait, 600)
        second = [asyncio.create_task(asked.match({"price": 50})) for _ in range(30)]
        await asyncio.sleep(0)  # they are asked for
        first[3].cancel()
        second[4].cancel()
        may_go_on.set()
        found = await asyncio.gather(*first, *second, return_exceptions=True)
        assert [type(found[i]) for i in (3, 24)] == [asyncio.CancelledError] * 2
        assert [one for one in found if one == ["cheap"]] == [["cheap"]] * 19
        assert asked.batches == 2

    asyncio.run(ask())


def test_the_size_of_a_batch_is_a_number(engine):
    with pytest.raises(UsageError, match="max_batch must be a whole number"):
        AsyncEngine(engine, max_batch=0)
