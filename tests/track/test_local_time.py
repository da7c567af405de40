"""Local time over daylight saving: schedules and moments of a day, against single datetimes."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest

from rangecast import (
    Engine,
    Number,
    Point,
    RangecastError,
    Rule,
    Space,
    Timestamp,
    Tracker,
    UsageError,
)
from rangecast.track.local_time import Schedule, moment_at
from rangecast.track.moments import micros_of

SPRING, AUTUMN = datetime(2026, 3, 28, tzinfo=UTC), datetime(2026, 10, 24, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "days", "begin", "end"),
    [
        ("Mon-Fri 08:00-18:00 Europe/Berlin", range(5), 8 * 60, 18 * 60),
        ("Sat,Sun 01:30-02:30 Europe/Berlin", (5, 6), 90, 150),
        ("02:15-24:00 America/St_Johns", range(7), 135, 1440),
        ("Sun 22:00-06:00 Australia/Lord_Howe", (6,), 22 * 60, 6 * 60),
        ("Sat-Mon 00:00-12:00 UTC", (5, 6, 0), 0, 720),
    ],
)
def test_a_schedule_has_the_moments_whose_local_time_it_names(text, days, begin, end):
    zone = ZoneInfo(text.split()[-1])
    moments = [
        start + timedelta(minutes=7 * step) for start in (SPRING, AUTUMN) for step in range(1300)
    ]
    expected = []
    for moment in moments:
        local = moment.astimezone(zone)
        minutes, day = local.hour * 60 + local.minute, local.weekday()
        if begin < end:
            expected.append(day in days and begin <= minutes < end)
        else:
            late, early = day in days and minutes >= begin, (day - 1) % 7 in days and minutes < end
            expected.append(late or early)
    micros = np.array([micros_of(moment) for moment in moments])
    assert Schedule(text).holds(micros).tolist() == expected
    assert len(set(expected)) == 2


def test_a_time_that_is_missing_is_the_moment_of_the_change_and_a_doubled_one_its_first():
    berlin = ZoneInfo("Europe/Berlin")
    assert moment_at(date(2026, 3, 29), 150, berlin) == datetime(2026, 3, 29, 1, tzinfo=UTC)
    assert moment_at(date(2026, 3, 29), 180, berlin) == datetime(2026, 3, 29, 1, tzinfo=UTC)
    assert moment_at(date(2026, 3, 29), 119, berlin) == datetime(2026, 3, 29, 0, 59, tzinfo=UTC)
    assert moment_at(date(2026, 10, 25), 150, berlin) == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    assert moment_at(date(2026, 10, 25), 180, berlin) == datetime(2026, 10, 25, 2, tzinfo=UTC)
    howe = ZoneInfo("Australia/Lord_Howe")  # clocks go forward by half an hour
    assert moment_at(date(2026, 10, 4), 135, howe) == datetime(2026, 10, 3, 15, 30, tzinfo=UTC)


def test_schedules_with_margins_untils_and_crossings():
    engine = Engine(Space([Timestamp("at"), Number("value")]))
    for name in ("plain", "margin", "until", "cross"):
        engine.subscribe(name, "value between 5 and 6")
    hours = "08:00-18:00 UTC"
    rules = {
        "plain": Rule(schedule=hours),
        "margin": Rule(schedule=hours, margin={"value": 1}),
        "until": Rule(schedule=hours, until="value > 8"),
        "cross": Rule(schedule=hours, cross="2 h"),
    }
    tracker = Tracker(engine, key="key", time="at", rules=rules)
    found = []
    for clock, value in (("07", 5), ("08", 5), ("17", 6.5), ("18", 6.5), ("19", 9), ("20", 4)):
        event = {"key": "a", "at": f"2026-01-31T{clock}:00Z", "value": value}
        some = sorted((one.transition, one.subscription) for one in tracker.update(event))
        found.append(" ".join(f"{kind} {name}" for kind, name in some))
    assert found == [
        "",
        "enter cross enter margin enter plain enter until",
        "exit cross exit plain",
        "exit margin",
        "exit until",
        "",
    ]


@pytest.mark.parametrize(
    "text", ["", "Mon 8-18 UTC", "Mo 08:00-18:00 UTC", "08:00-25:00 UTC", "08:00-08:00 UTC"]
)
def test_mistakes_are_named(text: str):
    with pytest.raises(UsageError, match="a schedule must be days, hours and a time zone"):
        Rule(schedule=text)
    with pytest.raises(UsageError, match="unknown time zone"):
        Rule(schedule="08:00-18:00 Europe/Nowhere")


@pytest.mark.parametrize(
    ("zone", "day"),
    [
        ("America/St_Johns", "1990-04-01"),
        ("Asia/Gaza", "2012-03-30"),
        ("Africa/Monrovia", "1972-01-07"),
    ],
)
def test_a_zone_whose_clocks_change_between_quarters_of_an_hour(zone: str, day: str):
    start = datetime.fromisoformat(f"{day}T00:00Z") - timedelta(hours=6)
    moments = [start + timedelta(seconds=30 * step) for step in range(2 * 60 * 12)]
    local = [moment.astimezone(ZoneInfo(zone)) for moment in moments]
    expected = [each.hour % 24 == 1 or (each.hour == 0 and each.minute >= 30) for each in local]
    micros = np.array([micros_of(moment) for moment in moments])
    assert Schedule(f"00:30-02:00 {zone}").holds(micros).tolist() == expected


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo", "UTC"])
def test_a_schedule_has_an_answer_at_the_first_and_the_last_moment(zone: str):
    ends = np.array([micros_of("0001-01-01T00:00Z"), micros_of("9999-12-31T23:59:59Z")])
    assert Schedule(f"00:00-24:00 {zone}").holds(ends).tolist() == [True, True]
    ends = np.array([micros_of("0001-01-01T00:00+14:00"), micros_of("9999-12-31T23:59-12:00")])
    assert Schedule(f"00:00-24:00 {zone}").holds(ends).tolist() == [True, True]


@pytest.mark.parametrize("moment", [None, float("nan"), pd.NaT, np.datetime64("NaT")])
def test_no_moment_is_rejected(moment):
    tracker = Tracker(Engine(Space([Timestamp("at")])), key="key", time="at")
    with pytest.raises(RangecastError):
        tracker.advance(moment)


@pytest.mark.parametrize("rule", [{"for_": "9" * 400 + " s"}, {"dwell": "9" * 400 + " h"}])
def test_an_immense_length_of_time_is_rejected(rule):
    with pytest.raises(UsageError, match="must be a length of time"):
        Rule(**rule)


def test_an_immense_speed_is_rejected():
    space = Space([Timestamp("at"), Point("place")])
    rules = {"a": Rule(cross="1 s", max_speed=10**400)}
    with pytest.raises(UsageError, match="max_speed must be given"):
        Tracker(Engine(space), key="key", time="at", rules=rules)
