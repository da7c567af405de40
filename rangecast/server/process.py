"""The server process: sockets, signals, start-up and shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import uvicorn

from rangecast.errors import UsageError
from rangecast.model.space import Space
from rangecast.overlay.wire.frames import MAX_BYTES
from rangecast.server.core import Core
from rangecast.server.delivery.push import ENDING
from rangecast.server.http.app import make_app
from rangecast.server.http.auth import DEFAULT
from rangecast.server.http.connections import ConnectionLimits, check_times
from rangecast.server.http.fast_path import FastPathProtocol
from rangecast.server.http.page import tile_origin
from rangecast.server.http.stalled import StallGuard
from rangecast.server.http.websocket_protocol import LINGER, BoundedWebSocket
from rangecast.server.links.dialer import checked_url
from rangecast.server.links.manager import LinkOptions
from rangecast.server.log.base import LogFullError
from rangecast.server.maintenance import Retention
from rangecast.server.pipeline.futures import result_of
from rangecast.server.replication.follower import Leader
from rangecast.server.security.tls import wrong_with
from rangecast.server.service import Service
from rangecast.server.shutdown import LAST, exit_after
from rangecast.server.state.admission import check_name
from rangecast.server.state.edits import DeleteConsumer, PutSpace
from rangecast.server.state.entries import Consumer

logger = logging.getLogger("rangecast.server")
SHUTDOWN = 10.0
"""Seconds that connections have to end when the server stops."""
PING = 20.0
"""Seconds after which a WebSocket is pinged; after as many again it is closed."""
_STEP = 0.1
"""Seconds between checks of closing connections."""
_SWITCH = 0.0005
"""Seconds that a busy thread may keep the others of the process waiting: the committer comes back
from the disk to a busy event loop several times for each group.
"""
_YOUNG = 20_000
"""Objects that are made before the garbage collector looks at them: a request makes hundreds, which
go without it.
"""
_LOOK = 5
"""Tenths of a second between checks of waiting connections."""
_RETRY = 1.0
"""Seconds before retrying what a full disk has postponed."""
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class Settings:
    """Settings of a server process."""

    data: Path | None
    host: str = "127.0.0.1"
    port: int = 8080
    spaces: dict[str, Space] = field(default_factory=dict)
    durability: str = "fsync"
    retention: Retention = field(default_factory=Retention)
    certificate: Path | None = None
    key: Path | None = None
    insecure: bool = False
    follow: str | None = None
    """Another server, whose log is copied."""
    token: str | None = field(default=None, repr=False)
    """For that one, or for links."""
    allow_private_webhooks: bool = False
    nats: str | None = None
    kafka: str | None = None
    broker: str | None = None
    """Name of this server in the network of linked servers."""
    links: tuple[str, ...] = ()
    """Servers to connect to."""
    log: str | None = None
    """Location of the log, if not in the data folder."""
    allowed_hosts: tuple[str, ...] = ()
    """Names that it may be called by without tokens, beside loopback and `host`."""
    shutdown_seconds: float = SHUTDOWN
    """Seconds that connections have to end when the server stops; then they are cut."""
    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    map_tiles: str | None = None
    """The address of tiles, under the map of the page."""
    tracks: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Options by which the objects of spaces are tracked."""
    device: str | None = None
    """Device that matches large batches of events."""

    def check(self) -> None:
        """Reject settings that would expose the server without authentication."""
        if self.follow is not None and (self.data is None or self.spaces):
            raise UsageError("--follow requires --data, and gets its spaces from the leader")
        if self.links and self.broker is None:
            raise UsageError(
                "--link requires --server-name, the name of this server among linked servers"
            )
        if self.broker is not None:
            self._check_broker(self.broker)
        if self.map_tiles is not None:
            tile_origin(self.map_tiles)
        if self.follow is not None and self.log is not None:
            raise UsageError("--follow keeps its copy in --data and can't be combined with --log")
        if (self.certificate is None) != (self.key is None):
            raise UsageError("--tls-cert and --tls-key must be given together")
        if self.certificate is not None:
            self.check_certificate()
        if self.host not in _LOOPBACK and self.certificate is None and not self.insecure:
            raise UsageError(
                f"--host {self.host} would be reachable from other machines without TLS\n"
                "  hint: give --tls-cert and --tls-key, or --insecure if a proxy provides TLS"
            )

    def _check_broker(self, broker: str) -> None:
        check_name("broker", broker)
        if self.follow is not None:
            raise UsageError("a server that follows another one can't have links")
        if self.data is None:
            raise UsageError(
                "--server-name requires --data: promises to linked servers must be durable"
            )
        if len(self.spaces) != 1:
            raise UsageError(
                f"--server-name requires exactly one --space, the one that is linked; given: "
                f"{len(self.spaces)}\n  hint: give one; others can be created over HTTP, and stay "
                "local"
            )
        urls = self._urls()
        if len(set(urls)) < len(urls):
            raise UsageError("a --link appears twice")

    def _urls(self) -> list[str]:
        return [checked_url(link, self.token, insecure=self.insecure) for link in self.links]

    def linked(self) -> LinkOptions | None:
        """Return the link settings, if the server is linked."""
        if self.broker is None:
            return None
        return LinkOptions(self.broker, next(iter(self.spaces)), tuple(self._urls()), self.token)

    def load_certificate(self, context: ssl.SSLContext) -> None:
        """Load the certificate and its key into a context."""
        assert self.certificate is not None
        try:  # no prompt for the password of a key: the process may have no terminal
            context.load_cert_chain(self.certificate, self.key, password=lambda: b"")
        except (OSError, ssl.SSLError) as error:
            raise UsageError(
                f"--tls-cert {self.certificate} and --tls-key {self.key} can't be used: {error}\n"
                "  hint: give two PEM files that belong together, the key without a password"
            ) from None

    def check_certificate(self) -> None:
        """Reject an unusable certificate; warn if clients would refuse it because of its dates."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.load_certificate(context)
        assert self.certificate is not None
        if wrong := wrong_with(context, self.certificate):
            logger.warning(
                "clients will reject --tls-cert %s: %s\n"
                "  hint: renew it, and send SIGHUP to load it",
                self.certificate,
                wrong,
            )


class Server(uvicorn.Server):
    """Uvicorn server that shuts down within a bounded time, and leaves signals to the caller."""

    def __init__(self, config: uvicorn.Config, service: Service, settings: Settings):
        super().__init__(config)
        self.service = service
        self.settings = settings
        self._stalled = StallGuard()

    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:  # once a second
            self._stalled.sweep(self.server_state.connections, time.monotonic())
        if counter % _LOOK == 0:
            check_times(self.server_state.connections, asyncio.get_running_loop().time())
        return await super().on_tick(counter)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self.config.ssl is not None:  # a handshake is part of what a head's time is for
            loop, seconds = asyncio.get_running_loop(), self.settings.limits.header_seconds
            made = partial(loop.create_server, ssl_handshake_timeout=seconds)
            loop.create_server = made  # type: ignore[method-assign]
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close all connections; abort those still open after a few seconds."""
        seconds = self.settings.shutdown_seconds
        for server in self.servers:
            server.close()
        self.servers.clear()  # nor is a TLS handshake that does not go on waited for
        deliveries = asyncio.create_task(self.service.deliveries.stop())
        await asyncio.sleep(0)  # they are cancelled now, so that none listens again
        self.service.core.hub.end()
        ending = asyncio.create_task(self._end_connections(time.monotonic() + seconds))
        self.config.timeout_graceful_shutdown = cast(int, seconds + 2 * _STEP)
        await super().shutdown(sockets)
        ending.cancel()
        await deliveries

    async def _end_connections(self, deadline: float) -> None:
        """Abort connections that peers keep open: first those with nothing pending, then all."""
        asked_to_end = set(self.server_state.connections)  # uvicorn does that
        while (now := time.monotonic()) < deadline:
            await asyncio.sleep(min(_STEP, deadline - now))
            connections = set(self.server_state.connections)
            for late in connections - asked_to_end:  # its TLS handshake was under way
                late.shutdown()
            asked_to_end |= connections
            self._stalled.sweep(connections, time.monotonic(), LINGER)
        left = list(self.server_state.connections)
        if left:
            text = "closing %s connections: they didn't end within %g seconds"
            logger.warning(text, len(left), self.settings.shutdown_seconds)
        for connection in left:
            connection.transport.abort()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        handlers: dict[int, Callable[[], None]] = {
            signal_: partial(self._signalled, signal_)
            for signal_ in (signal.SIGINT, signal.SIGTERM)
        }
        if self.settings.certificate is not None:
            handlers[signal.SIGHUP] = self.reload_certificate
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        try:
            yield
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)

    def reload_certificate(self) -> None:
        """Reload the certificate for new connections; open ones keep theirs.

        If the files can't be used, keep the current certificate and log a warning.
        """
        try:
            self.settings.check_certificate()
        except UsageError as error:
            logger.error("the certificate was not reloaded: %s", error)
            return
        assert self.config.ssl is not None
        try:
            self.settings.load_certificate(self.config.ssl)
        except UsageError as error:  # another one was written just now
            logger.error("the certificate was only partly reloaded; send SIGHUP again: %s", error)
        else:
            logger.warning("the certificate was reloaded")

    def stop(self) -> None:
        """Finish the current work, then stop the server."""
        self.should_exit = True

    def _signalled(self, number: int) -> None:
        """Stop within a bounded time; exit immediately on the second signal."""
        if self.should_exit:
            logger.warning("exiting at once: received a second signal")
            os._exit(128 + number)
        self.stop()
        exit_after(self.settings.shutdown_seconds + LAST)


def serve(
    settings: Settings,
    ready: Callable[[str, Server], None] = lambda _url, _server: None,
    beside: Sequence[Callable[[Core], Awaitable[None]]] = (),
) -> None:
    """Serve until a signal arrives.

    `ready` is called with the URL and the server; `beside` are tasks that run concurrently.
    """
    settings.check()
    listener = _listener(settings)
    failure: list[BaseException] = []

    def stopped(error: BaseException) -> None:
        logger.critical("the server is stopping: %s", error)
        failure.append(error)
        server.should_exit = True

    try:
        service = Service(
            settings.data,
            durability=settings.durability,
            retention=settings.retention,
            is_open=settings.insecure,
            allowed_hosts=(settings.host, *settings.allowed_hosts),
            leader=None if settings.follow is None else Leader(settings.follow, settings.token),
            allow_private_webhooks=settings.allow_private_webhooks,
            nats=settings.nats,
            kafka=settings.kafka,
            links=settings.linked(),
            log=settings.log,
            device=settings.device,
            stopped=stopped,
        )
    except BaseException:
        listener.close()
        raise
    sys.setswitchinterval(_SWITCH)
    limits = settings.limits.with_room()
    config = uvicorn.Config(
        make_app(service, map_tiles=settings.map_tiles),
        log_config=None,
        access_log=False,
        http=cast(Any, partial(FastPathProtocol, core=service.core, limits=limits)),
        ws=BoundedWebSocket,
        ws_per_message_deflate=False,
        ws_max_size=MAX_BYTES,
        ws_ping_interval=PING,
        ws_ping_timeout=PING,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.key,
        server_header=False,
    )
    server = Server(config, service, settings)

    async def run() -> None:
        sessions = _sessions_of(service.core)  # before the first connection
        running = asyncio.create_task(server.serve([listener]))
        while not server.started and not running.done():
            await asyncio.sleep(0.005)
        others: list[asyncio.Task[Any]] = []
        if server.started and not server.should_exit:
            scheme = "http" if settings.certificate is None else "https"
            host, port = listener.getsockname()[:2]
            preparing = asyncio.create_task(_prepare(service, settings, sessions))
            await asyncio.wait([preparing, running], return_when=asyncio.FIRST_COMPLETED)
            if preparing.done() and not server.should_exit:
                preparing.result()
                ready(f"{scheme}://{host}:{port}", server)
                others = [asyncio.ensure_future(task(service.core)) for task in beside]
            else:  # a signal came first: preparation continues at the next start
                preparing.cancel()
                await asyncio.wait([preparing])
        await running
        for other in others:
            other.cancel()
        if others:
            await asyncio.wait(others, timeout=ENDING)

    runner = asyncio.Runner(loop_factory=config.get_loop_factory())
    with contextlib.closing(listener), runner:
        runner.run(run())
    if failure:
        raise failure[0]


def freeze_garbage_collector() -> None:
    """Exclude long-lived objects from garbage collection; call it once everything is loaded.

    Modules and loaded data are some 200,000 objects. Traversing them takes the collector 0.1 s or
    more, during which no request is answered.
    """
    import numba  # noqa: F401 - a third of them, and the first filter would load it

    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, 20, 20)
    gc.enable()


async def _prepare(service: Service, settings: Settings, sessions: Sequence[Consumer]) -> None:
    """Create the given spaces, and remove the consumers of connections that are closed."""
    if settings.follow is not None:
        return
    try:
        await _make_spaces(service.core, settings)
        await _end_sessions(service.core, sessions)
    except LogFullError as error:
        if any((DEFAULT, name) not in service.core.registry.spaces for name in settings.spaces):
            raise
        logger.warning("the server is starting and doesn't accept events yet: %s", error)
        later = _prepare_later(service, settings, sessions)
        _later.add(task := asyncio.create_task(later))
        task.add_done_callback(_later.discard)
    if service.links is not None:
        service.links.start()


_later: set[asyncio.Task[None]] = set()
"""Tasks that nothing else refers to."""


async def _prepare_later(
    service: Service, settings: Settings, sessions: Sequence[Consumer]
) -> None:
    """Finish the preparation that a full disk has postponed, once there is space again."""
    while True:
        await asyncio.sleep(_RETRY)
        with contextlib.suppress(LogFullError):
            await _make_spaces(service.core, settings)
            await _end_sessions(service.core, sessions)
            return


async def _make_spaces(core: Core, settings: Settings) -> None:
    """Create or change the given spaces; an unchanged one needs no disk space."""
    for name, space in settings.spaces.items():
        old, track = core.registry.spaces.get((DEFAULT, name)), settings.tracks.get(name)
        is_known = old is not None and (track is None or old.track == track)
        if old is None or not is_known or old.space.definition() != space.definition():
            await result_of(core.edit(PutSpace(DEFAULT, name, space.definition(), track)))


def _sessions_of(core: Core) -> list[Consumer]:
    """Return the consumers that end with their connections."""
    return [consumer for consumer in core.registry.consumers.values() if consumer.is_session]


async def _end_sessions(core: Core, sessions: Sequence[Consumer]) -> None:
    for session in sessions:
        if core.registry.consumers.get((session.tenant, session.name)) is session:
            await result_of(core.edit(DeleteConsumer(session.tenant, session.name)))


def _listener(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        raise UsageError(
            f"{settings.host}:{settings.port} can't listen: {error.strerror}\n"
            "  hint: choose another --port, or stop the process that uses this one"
        ) from None
    listener.set_inheritable(True)
    return listener
