"""Subscriptions that are changed in part, and ids that are integers, over HTTP and a restart."""

import asyncio
from pathlib import Path

import pytest

from tests.support.server.serving import Client, run, serving

ONE = "spaces/s/subscriptions/7"


def test_changes_at_once_all_take_effect() -> None:
    """Each is made of what is there: none takes back another."""

    async def work() -> None:
        async with serving() as service:
            ask = Client(service)
            await ask("PUT", "consumers/c", {"space": "s"})
            whole = {"filter": "price < 5", "score": 1, "consumer": "c", "ttl": 10_000}
            await ask("PUT", ONE, whole)
            expires = (await ask("GET", ONE))["expires"]
            await asyncio.gather(
                ask("PATCH", ONE, {"score": 2}),
                ask("PATCH", ONE, {"filter": "price < 6"}),
                ask("PATCH", ONE, {"weights": {"price": 3}}),
                *(ask("PATCH", "spaces/s/subscriptions:bulk", [row]) for row in ROWS),
            )
            found = await ask("GET", ONE)
            del found["position"]
            assert found == {
                "id": "7",
                "filter": "price < 8",
                "score": 2.0,
                "weights": {"price": 3.0},
                "consumer": "c",
                "expires": expires,
            }

    run(work)


ROWS = [{"id": "7", "filter": "price < 8"}] * 2


def test_a_change_has_its_conditions() -> None:
    async def work() -> None:
        async with serving() as service:
            ask = Client(service)
            await ask("PATCH", ONE, {"score": 2}, 404)
            await ask("PUT", ONE, {"filter": "price < 5"})
            await ask("PATCH", ONE, {"score": "x"}, 422)
            await ask("PATCH", ONE, {"filter": "price <"}, 422)
            await ask("PATCH", ONE, {"consumer": "none"}, 404)
            await ask("PATCH", ONE, {"id": 8}, 422)
            rows = [{"id": "7", "filter": "price < 1"}, {"id": "8", "filter": "price < 1"}]
            await ask("PATCH", "spaces/s/subscriptions:bulk", rows, 404)
            assert (await ask("GET", ONE))["filter"] == "price < 5"
            other = {"If-Match": '"1"'}
            changed = await ask._http.patch(f"/v1/{ONE}", json={"score": 2}, headers=other)
            assert changed.status_code == 412
            own = {"If-Match": f'"{(await ask("GET", ONE))["position"].partition(":")[2]}"'}
            changed = await ask._http.patch(f"/v1/{ONE}", json={"score": 2}, headers=own)
            assert changed.status_code == 200

    run(work)


@pytest.mark.parametrize("has_snapshot", [False, True])
def test_integers_and_the_order_of_arrival_survive_a_restart(
    tmp_path: Path, has_snapshot: bool
) -> None:
    async def begin() -> None:
        async with serving(tmp_path) as service:
            ask = Client(service)
            for one in (30, 7, 20):
                await ask("PUT", f"spaces/s/subscriptions/{one}", {"id": one, "filter": "true"})
            await ask("PUT", "spaces/s/subscriptions/5", {"filter": "true"})
            await ask("PATCH", "spaces/s/subscriptions/30", {"score": 1})
            await ask("PUT", "spaces/s/subscriptions/7", {"filter": "price < 9"})  # a text from now
            if has_snapshot:
                service.core.snapshot()

    async def again() -> None:
        async with serving(tmp_path) as service:
            ask = Client(service)
            page = await ask("GET", "spaces/s/subscriptions?limit=3")
            rest = await ask("GET", f"spaces/s/subscriptions?after={page['next']}")
            assert [one["id"] for one in page["items"] + rest["items"]] == [30, "7", 20, "5"]
            assert (rest["next"], rest["count"]) == (None, 4)
            found = await ask("POST", "spaces/s/events:match", {"price": 1})
            assert found["matches"] == [[30, "7", 20, "5"]]

    run(begin)
    run(again)
