"""Fixtures of a server over HTTP, one per module."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from rangecast.client import Client
from tests.support.server.served import SUBSCRIPTIONS, Served


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    served = Served()
    yield served.url
    served.stop()


@pytest.fixture
def http(server: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server, trust_env=False, verify=False) as client:
        yield client


@pytest.fixture(scope="module")
def market(server: str) -> Iterator[Client]:
    with Client(server, space="market") as client:
        client.put_consumer("all")
        client.upsert_many([{**row, "consumer": "all"} for row in SUBSCRIPTIONS])
        yield client
