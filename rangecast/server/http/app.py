"""The application: all paths, over one service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI
from starlette.types import ASGIApp

from rangecast.server.http import (
    admin,
    boards,
    consumers,
    events,
    link,
    look,
    page,
    problems,
    replica,
    spaces,
    stream,
    tickets,
    ways,
)
from rangecast.server.http.edge import Edge
from rangecast.server.service import Service

PARTS = (
    *(admin, look, events, spaces, boards, consumers, ways, stream, tickets, link, replica),
    page,
)


def make_app(service: Service) -> ASGIApp:
    """Return the application; it starts the service and stops it."""

    @asynccontextmanager
    async def life(_app: FastAPI) -> AsyncIterator[None]:
        service.start()
        service.pump.gather(asyncio.get_running_loop().call_soon)
        try:
            yield
        finally:
            await service.ways.stop()
            if service.links is not None:
                await service.links.stop()
            service.stop()

    app = FastAPI(
        title="rangecast",
        version=version("rangecast"),
        summary="Content-based publish/subscribe over ranges",
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=life,
    )
    app.state.service = service
    app.state.tickets = tickets.Tickets()
    problems.install(app)
    for part in PARTS:
        app.include_router(part.router)
    return Edge(app, service)
