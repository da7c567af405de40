"""The process: sockets, signals, and what is done before the first request and after the last."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import uvicorn

from rangecast.errors import UsageError
from rangecast.model.space import Space
from rangecast.overlay.messages import MOST_BYTES
from rangecast.server.admission import check_name
from rangecast.server.follow import Leader
from rangecast.server.http.access import DEFAULT
from rangecast.server.http.app import make_app
from rangecast.server.http.direct import DirectProtocol
from rangecast.server.links.dial import checked_url
from rangecast.server.links.links import LinkOptions
from rangecast.server.records import DeleteConsumer, PutSpace
from rangecast.server.service import Retention, Service
from rangecast.server.waiting import answered

logger = logging.getLogger("rangecast.server")
DRAIN = 10
"""Seconds that requests under way have to end when the server stops."""
PING = 20.0
"""Seconds after which a WebSocket is asked whether it is there; as many later it is closed."""
_LINGER = 0.5
"""Seconds that a client has at least to confirm that its connection ends, when the server stops."""
_SWITCH = 0.0005
"""Seconds that a busy thread may keep the others of the process waiting: the committer comes back
from the disk to a busy event loop several times for each group.
"""
_YOUNG = 20_000
"""Objects that are made before the garbage collector looks at them: a request makes hundreds, which
go without it.
"""
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class Settings:
    """How to serve."""

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
    token: str | None = None
    """For that one, or for links."""
    allow_private_webhooks: bool = False
    nats: str | None = None
    kafka: str | None = None
    broker: str | None = None
    """The name of this server among those that it is linked to."""
    links: tuple[str, ...] = ()
    """Servers to connect to."""
    log: str | None = None
    """Where the log is, if not in the data folder."""

    def check(self) -> None:
        """Refuse what would let strangers in."""
        if self.follow is not None and (self.data is None or self.spaces):
            raise UsageError("--follow needs --data, and takes its spaces from the other server")
        if self.links and self.broker is None:
            raise UsageError("--link needs --broker: the name of this server among linked ones")
        if self.broker is not None:
            self._check_broker(self.broker)
        if self.follow is not None and self.log is not None:
            raise UsageError("--follow keeps its copy in --data: it goes without --log")
        if (self.certificate is None) != (self.key is None):
            raise UsageError("--certificate and --key go together")
        if self.certificate is not None:
            self.load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        if self.host not in _LOOPBACK and self.certificate is None and not self.insecure:
            raise UsageError(
                f"--host {self.host} can be reached from elsewhere, without TLS\n"
                "  to do: give --certificate and --key, or --insecure if something in front of it "
                "does TLS"
            )

    def _check_broker(self, broker: str) -> None:
        check_name("broker", broker)
        if self.follow is not None:
            raise UsageError("a server that follows another one has no links of its own")
        if self.data is None:
            raise UsageError("--broker needs --data: what is promised to others must be kept")
        if len(self.spaces) != 1:
            raise UsageError(
                f"--broker needs exactly one --space, the one that links carry; given: "
                f"{len(self.spaces)}\n  to do: give one; others can be made over HTTP, and stay "
                "with this server"
            )
        urls = self._urls()
        if len(set(urls)) < len(urls):
            raise UsageError("a --link is given twice")

    def _urls(self) -> list[str]:
        return [checked_url(one, self.token, insecure=self.insecure) for one in self.links]

    def linked(self) -> LinkOptions | None:
        """Return how it is linked to others, if it is."""
        if self.broker is None:
            return None
        return LinkOptions(self.broker, next(iter(self.spaces)), tuple(self._urls()), self.token)

    def load_certificate(self, context: ssl.SSLContext) -> None:
        """Load the certificate and its key into a context."""
        assert self.certificate is not None
        try:  # a key with a password isn't asked for it: nobody may be there
            context.load_cert_chain(self.certificate, self.key, password=lambda: b"")
        except (OSError, ssl.SSLError) as error:
            raise UsageError(
                f"--certificate {self.certificate} and --key {self.key} can't be used: {error}\n"
                "  to do: give two PEM files that belong together, the key without a password"
            ) from None


class Server(uvicorn.Server):
    """Waits for requests alone when it stops, and leaves signals to the caller."""

    service: Service
    settings: Settings

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.service.hub.close_all()
        for session in list(self.service.sessions):
            await session.close()
        for one in self.servers:
            one.close()
        self.servers.clear()  # nor is a TLS handshake waited for that nobody goes on with
        letting_go = asyncio.create_task(self._let_go())
        await super().shutdown(sockets)
        letting_go.cancel()

    async def _let_go(self) -> None:
        """End connections that are closed here, and that their clients hold.

        Over TLS a connection stays until its client has confirmed the end, and one that keeps it
        for later doesn't look.
        """
        before: set[Any] = set()
        while True:
            await asyncio.sleep(_LINGER)  # what was answered last may be on its way
            closing = {one for one in self.server_state.connections if one.transport.is_closing()}
            for one in closing & before:
                if not one.transport.get_write_buffer_size():
                    one.transport.abort()
            before = closing

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        handlers = {signal.SIGINT: self.stop, signal.SIGTERM: self.stop}
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
        """Read the certificate again: connections from now on get it, those that are open stay.

        If the files can't be used, the server goes on with what it has, and says so.
        """
        try:
            self.settings.load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        except UsageError as error:
            logger.error("the certificate is not reloaded: %s", error)
            return
        assert self.config.ssl is not None
        self.settings.load_certificate(self.config.ssl)
        logger.warning("the certificate is reloaded")

    def stop(self) -> None:
        """End what is under way, then the server; asked a second time, end at once."""
        self.force_exit = self.should_exit
        self.should_exit = True


def serve(
    settings: Settings,
    ready: Callable[[str, Server], None] = lambda _url, _server: None,
    beside: Sequence[Callable[[Service], Awaitable[None]]] = (),
) -> None:
    """Serve until a signal comes; `ready` is called with the address, `beside` runs meanwhile."""
    settings.check()
    listener = _listener(settings)
    failure: list[BaseException] = []

    def stopped(error: BaseException) -> None:
        logger.critical("the server stops: %s", error)
        failure.append(error)
        server.should_exit = True

    try:
        service = Service(
            settings.data,
            durability=settings.durability,
            retention=settings.retention,
            is_open=settings.insecure,
            leader=None if settings.follow is None else Leader(settings.follow, settings.token),
            allow_private_webhooks=settings.allow_private_webhooks,
            nats=settings.nats,
            kafka=settings.kafka,
            links=settings.linked(),
            log=settings.log,
            stopped=stopped,
        )
    except BaseException:
        listener.close()
        raise
    sys.setswitchinterval(_SWITCH)
    config = uvicorn.Config(
        make_app(service),
        log_config=None,
        access_log=False,
        http=cast(Any, partial(DirectProtocol, service=service)),
        ws="websockets-sansio",
        ws_per_message_deflate=False,
        ws_max_size=MOST_BYTES,
        ws_ping_interval=PING,
        ws_ping_timeout=PING,
        timeout_graceful_shutdown=DRAIN,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.key,
        server_header=False,
    )
    server = Server(config)
    server.service, server.settings = service, settings

    async def run() -> None:
        running = asyncio.create_task(server.serve([listener]))
        while not server.started and not running.done():
            await asyncio.sleep(0.005)
        others: list[asyncio.Task[Any]] = []
        if server.started:
            await _prepare(service, settings)
            scheme = "http" if settings.certificate is None else "https"
            host, port = listener.getsockname()[:2]
            ready(f"{scheme}://{host}:{port}", server)
            others = [asyncio.ensure_future(one(service)) for one in beside]
        await running
        for one in others:
            one.cancel()

    runner = asyncio.Runner(loop_factory=config.get_loop_factory())
    with contextlib.closing(listener), runner:
        runner.run(run())
    if failure:
        raise failure[0]


def spare_the_collector() -> None:
    """Keep the garbage collector of this process from what stays: call it once all is loaded.

    Modules and what was loaded are some 200,000 objects. To go through them takes the collector
    0.1 s and more, during which nobody is answered.
    """
    import numba  # noqa: F401 - a third of them, and the first filter would load it

    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, 20, 20)
    gc.enable()


async def _prepare(service: Service, settings: Settings) -> None:
    """Make the spaces that were given, and end what belonged to connections that are gone."""
    if settings.follow is not None:
        return
    for name, space in settings.spaces.items():
        await answered(service.edit(PutSpace(DEFAULT, name, space.definition())))
    if service.links is not None:
        service.links.start()
    gone = [one for one in service.registry.consumers.values() if one.out.get("kind") == "session"]
    for one in gone:
        await answered(service.edit(DeleteConsumer(one.tenant, one.name)))


def _listener(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        raise UsageError(
            f"{settings.host}:{settings.port} can't be listened on: {error.strerror}\n"
            "  to do: choose another --port, or stop what uses this one"
        ) from None
    listener.set_inheritable(True)
    return listener
