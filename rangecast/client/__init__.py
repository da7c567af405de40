"""A client for a server, with the method names of `Engine`.

    client = Client("http://127.0.0.1:8080", space="market")
    client.subscribe("cheap", "price < 10 and sector = 'tech'")
    client.match({"price": 9.5, "sector": "tech"})           # ["cheap"]
    client.publish({"price": 9.5, "sector": "tech"})

`AsyncClient` has the same methods, to be awaited.
"""

from importlib.util import find_spec

from rangecast.errors import UsageError

if find_spec("httpx") is None:
    raise UsageError(
        "a client needs httpx, which isn't installed\n  hint: pip install 'rangecast[server]'"
    )

from rangecast.client.async_client import AsyncClient
from rangecast.client.boards import AsyncClientBoard, ClientBoard
from rangecast.client.client import Client
from rangecast.client.errors import ServerError
from rangecast.client.operations.boards import ListedInterest
from rangecast.client.results import (
    DigestMessage,
    Lists,
    Message,
    Messages,
    Published,
    PublishError,
    Ranked,
    SubscribeError,
    TransitionMessage,
)
from rangecast.client.watch import Watch

__all__ = [
    "AsyncClient",
    "AsyncClientBoard",
    "Client",
    "ClientBoard",
    "DigestMessage",
    "ListedInterest",
    "Lists",
    "Message",
    "Messages",
    "PublishError",
    "Published",
    "Ranked",
    "ServerError",
    "SubscribeError",
    "TransitionMessage",
    "Watch",
]
