"""The ASGI application: all routes of one service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI
from starlette.types import ASGIApp

from rangecast.server.http import page, problems, tickets
from rangecast.server.http.auth import Grants
from rangecast.server.http.middleware import Middleware
from rangecast.server.http.openapi import document
from rangecast.server.http.routes import (
    admin,
    boards,
    bulk,
    consumers,
    delivery,
    events,
    explain,
    link,
    patches,
    replica,
    selected,
    spaces,
    tracks,
    websocket,
)
from rangecast.server.service import Service
from rangecast.server.shutdown import in_thread

PARTS = (
    *(
        admin,
        explain,
        events,
        spaces,
        patches,
        selected,
        bulk,
        boards,
        consumers,
        delivery,
        websocket,
        tickets,
        link,
        replica,
        tracks,
    ),
    page,
)


def make_app(service: Service, *, map_tiles: str | None = None) -> ASGIApp:
    """Return the application; it starts and stops the service.

    map_tiles   URL of the tiles for the page's map
    """

    @asynccontextmanager
    async def life(_app: FastAPI) -> AsyncIterator[None]:
        service.start()
        service.core.pipeline.coalesce_wakeups(asyncio.get_running_loop().call_soon)
        watching = asyncio.create_task(app.state.grants.run())
        try:
            yield
        finally:
            watching.cancel()
            await service.deliveries.stop()
            if service.links is not None:
                await service.links.stop()
            await in_thread(service.stop, "rangecast-stop")

    app = FastAPI(
        title="rangecast",
        version=version("rangecast"),
        summary="Content-based publish/subscribe over ranges",
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=life,
        strict_content_type=False,  # a body without a type is JSON
    )
    app.state.service = service
    app.state.core = service.core
    app.state.deliveries = service.deliveries
    app.state.links = service.links
    app.state.tickets = tickets.Tickets()
    app.state.map_tiles = map_tiles
    app.state.grants = Grants(service.core)
    problems.install(app)
    document.install(app)
    for part in PARTS:
        app.include_router(part.router)
    return Middleware(app, service.core)
