"""Webhooks: messages as signed POST requests, in order, retried on a schedule.

Requests follow Standard Webhooks (headers, signature, schedule) and CloudEvents (body). `Delivery`
decides when to retry and when to give up; it does no I/O, and time is passed in.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import hmac
import random
import secrets
import ssl
import time
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from functools import cache, partial
from typing import Any, Literal, NamedTuple

import httpx
import msgspec

from rangecast.errors import abbreviate
from rangecast.server.core import Core
from rangecast.server.delivery.cloudevents import (
    BATCH,
    GAP,
    ONE,
    TEST,
    cloud_event,
    listed,
    match_event,
    name_of,
)
from rangecast.server.delivery.messages import Gap, Message
from rangecast.server.delivery.push import DeliverySettings, PushDelivery
from rangecast.server.delivery.url_guard import (
    AddressError,
    address_of,
    check_port,
    is_private_literal,
    target_of,
)
from rangecast.server.pipeline.futures import result_of
from rangecast.server.state.edits import AddDeadLetters, PutConsumer, hidden
from rangecast.server.state.entries import Consumer
from rangecast.server.state.registry import RequestError

MINUTE, HOUR = 60.0, 3600.0
DELAYS = (
    *(0.0, 5.0, 5 * MINUTE, 30 * MINUTE),
    *(2 * HOUR, 5 * HOUR, 10 * HOUR, 14 * HOUR, 20 * HOUR, 24 * HOUR),
)
"""Seconds before each attempt, of Standard Webhooks: ten, over a little more than three days."""
JITTER = 0.1
"""Maximum fraction added to a delay at random, so that retries are spread out."""
LONGEST_WAIT = 24 * HOUR
"""Seconds that `Retry-After` may ask for, at most."""
ATTEMPT_TIMEOUT = 15.0
"""Seconds of one attempt at most, from name resolution to the answer."""
MAX_ANSWER_BYTES, DRAIN = 16 << 10, 0.5
"""Maximum bytes and seconds of an answer that are read and discarded, so that its connection can be
reused.
"""
MAX_BATCH = 100
"""Maximum messages of one request."""
OLD_SECRET_SECONDS = 24 * HOUR
"""Seconds for which the previous secret also signs."""
_PREFIX = "whsec_"


class Answer(NamedTuple):
    """Outcome of a delivery attempt."""

    status: int | None
    """HTTP status; `None`: no response."""
    error: str = ""
    retry_after: float | None = None
    """Seconds, if the answer has them."""

    @property
    def has_arrived(self) -> bool:
        """Whether the receiver accepted the message."""
        return self.status is not None and 200 <= self.status < 300


Verdict = Literal["done", "later", "dead", "stop"]


class Delivery:
    """Retry state of a pending request: when it is due, and what to do after an attempt."""

    def __init__(self, now: float, delays: Sequence[float] = DELAYS):
        self.attempts = 0
        self.due = now + delays[0]
        self._delays = delays

    def handle(self, now: float, answer: Answer, chance: float) -> Verdict:
        """Process the outcome of an attempt; `chance` is a random number in [0, 1)."""
        self.attempts += 1
        if answer.has_arrived:
            return "done"
        if answer.status == 410:
            return "stop"
        if self.attempts >= len(self._delays):
            return "dead"
        delay = self._delays[self.attempts] * (1 + JITTER * chance)
        self.due = now + max(delay, min(answer.retry_after or 0.0, LONGEST_WAIT))
        return "later"


class Options(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Stored options of a webhook."""

    kind: Literal["webhook"]
    url: str
    secret: str = ""
    allow_private: bool = False
    """Whether addresses outside the public internet may be called."""
    batch: int = 1
    """Maximum messages per request; several are sent as a CloudEvents batch."""
    on_dead: Literal["skip", "stop"] = "skip"
    """After the last attempt: continue with the next message, or stop."""
    old_secret: str = ""
    old_until: float = 0.0

    def __repr__(self) -> str:
        """Hide the secrets: the text may end up in error messages."""
        return f"Options({hidden(msgspec.structs.asdict(self))!r})"


class Webhook(PushDelivery):
    """Delivers one consumer's messages to a webhook."""

    def __init__(self, core: Core, consumer: Consumer, settings: DeliverySettings):
        super().__init__(core, consumer, settings)
        self.options = msgspec.convert(consumer.delivery, Options)
        self.batch_size = self.options.batch
        self.delivery: Delivery | None = None
        self._client: httpx.AsyncClient | None = None

    @classmethod
    def checked(
        cls, settings: DeliverySettings, definition: dict[str, Any], old: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        try:
            options = msgspec.convert(definition, Options)
        except msgspec.ValidationError as error:
            raise RequestError(422, f"invalid webhook options: {error}") from None
        target = target_of(options.url)
        if options.old_secret or options.old_until:
            raise RequestError(422, "use secret:rotate to change a secret")
        if not 1 <= options.batch <= MAX_BATCH:
            raise RequestError(
                422, f"'batch' must be from 1 to {MAX_BATCH}; given: {options.batch}"
            )
        if options.allow_private and not settings.allow_private_webhooks:
            raise RequestError(
                403,
                "this server doesn't call private addresses\n"
                "  hint: its operator can start it with --allow-private-webhooks",
            )
        if not options.allow_private:
            check_port(target)
            if is_private_literal(target.host):
                raise RequestError(422, f"{target.host} isn't a public internet address")
        news: dict[str, Any] = {}
        if options.secret:
            key_of(options.secret)
        elif "secret" in old:
            options.secret = old["secret"]
            options.old_secret = old.get("old_secret", "")
            options.old_until = old.get("old_until", 0.0)
        else:
            options.secret = news["secret"] = new_secret()
        return msgspec.to_builtins(options), news

    @classmethod
    def shown(cls, options: dict[str, Any]) -> dict[str, Any]:
        kept = {name: value for name, value in options.items() if not name.startswith("old_")}
        return kept | {"secret": "..."}

    def state(self) -> dict[str, Any]:
        state = super().state()
        if self.delivery is not None and self.delivery.attempts:
            due = time.time() + self.delivery.due - time.monotonic()
            state |= {"attempts": self.delivery.attempts, "next_attempt": due}
        return state

    async def deliver(self, messages: Sequence[Message], upto: int) -> None:
        verdict = await self._carry(*self._request(messages))
        if verdict == "dead":
            await self._add_dead_letter(messages)

    async def tell_gap(self, gap: Gap) -> None:
        await super().tell_gap(gap)
        epoch = self.core.epoch
        name = f"gap_{name_of(self.consumer, epoch, gap.after, gap.upto)}"
        await self._carry(name, ONE, cloud_event(GAP, name, self.consumer, gap.json(epoch)))

    async def end(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def test(self) -> Answer:
        """Make one attempt to deliver a test message."""
        name = f"test_{secrets.token_hex(8)}"
        return await self.attempt(name, ONE, cloud_event(TEST, name, self.consumer, b"{}"))

    async def redeliver(self, message: Message) -> Answer:
        """Make one attempt to deliver a dead letter."""
        return await self.attempt(*self._request([message]))

    async def _carry(self, name: str, kind: str, body: bytes) -> Verdict:
        """Retry until an attempt succeeds or the schedule is exhausted."""
        # By the monotonic clock: a step of the wall clock must not delay an attempt.
        self.delivery = delivery = Delivery(time.monotonic(), DELAYS)
        verdict: Verdict = "later"
        while verdict == "later":
            await asyncio.sleep(max(0.0, delivery.due - time.monotonic()))
            answer = await self.attempt(name, kind, body)
            self.error = answer.error
            verdict = delivery.handle(time.monotonic(), answer, random.random())
        self.delivery = None
        if verdict == "stop":
            await self.stop("the receiver answered 410 (Gone): delivery has stopped")
        return verdict

    async def _add_dead_letter(self, messages: Sequence[Message]) -> None:
        consumer = self.consumer
        seqs = [message.seq for message in messages]
        edit = AddDeadLetters(
            consumer.tenant, consumer.name, seqs, self.error, int(time.time() * 1e6), self.moved
        )
        await result_of(self.core.edit(edit))
        if self.options.on_dead == "stop":
            await self.stop(f"all attempts failed; the last one: {self.error}")

    def _request(self, messages: Sequence[Message]) -> tuple[str, str, bytes]:
        lineage, first, last = self.core.lineage, messages[0].seq, messages[-1].seq
        name = name_of(self.consumer, lineage.at(last), first, last)
        events = [
            match_event(message, self.consumer, lineage.at(message.seq)) for message in messages
        ]
        if self.options.batch == 1:
            return name, ONE, events[0]
        return name, BATCH, listed(events)

    async def attempt(self, name: str, kind: str, body: bytes) -> Answer:
        """Make one request; failures are returned, not raised."""
        try:
            async with asyncio.timeout(ATTEMPT_TIMEOUT):
                response = await self._post(name, kind, body)
        except AddressError as failure:
            return Answer(None, str(failure))
        except TimeoutError:
            return Answer(None, f"no response within {ATTEMPT_TIMEOUT:g} seconds")
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as failure:
            return Answer(None, f"no response: {type(failure).__name__}")
        status, asked = response.status_code, response.headers.get("retry-after")
        with contextlib.suppress(TimeoutError, httpx.HTTPError):
            async with asyncio.timeout(DRAIN):
                await _drained(response)
        await response.aclose()
        error = "" if 200 <= status < 300 else f"answered {status}"
        if 300 <= status < 400:
            error += ": redirects aren't followed"
        return Answer(status, error, None if asked is None else seconds_of(asked, time.time()))

    async def _post(self, name: str, kind: str, body: bytes) -> httpx.Response:
        target = target_of(self.options.url)
        is_allowed = self.options.allow_private and self.settings.allow_private_webhooks
        resolve = partial(self.settings.resolver.addresses, self.consumer.tenant)
        address = await address_of(target, resolve, allow_private=is_allowed)
        if self._client is None:
            # One per consumer: a connection whose certificate was checked for one name must not
            # carry requests for another name at the same address.
            self._client = httpx.AsyncClient(
                verify=_tls(),
                trust_env=False,
                follow_redirects=False,
                timeout=ATTEMPT_TIMEOUT,
                limits=httpx.Limits(max_connections=1),
            )
        now = time.time()
        headers = {
            "Host": target.name,
            "Content-Type": kind,
            "User-Agent": "rangecast",
            "Accept-Encoding": "identity",
            "webhook-id": name,
            "webhook-timestamp": str(int(now)),
            "webhook-signature": " ".join(
                signature(secret, name, int(now), body) for secret in self._secrets(now)
            ),
        }
        request = self._client.build_request(
            "POST",
            target.at(address),
            content=body,
            headers=headers,
            extensions={"sni_hostname": target.host},
        )
        return await self._client.send(request, stream=True)

    def _secrets(self, now: float) -> list[str]:
        is_old_good = self.options.old_secret and now < self.options.old_until
        return [self.options.secret, *([self.options.old_secret] if is_old_good else [])]


def rotated(consumer: Consumer) -> tuple[PutConsumer, str]:
    """Return the edit that rotates the secret of a webhook, and the new secret."""
    if consumer.delivery.get("kind") != "webhook":
        raise RequestError(409, f"the consumer {abbreviate(consumer.name)} has no webhook")
    secret = new_secret()
    old = {"old_secret": consumer.delivery["secret"], "old_until": time.time() + OLD_SECRET_SECONDS}
    options = consumer.delivery | {"secret": secret} | old
    return msgspec.structs.replace(consumer.as_put(), delivery=options), secret


def new_secret() -> str:
    """Return a new signing secret of 256 random bits."""
    return _PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def key_of(secret: str) -> bytes:
    """Return the bytes of a secret; reject malformed text."""
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(_PREFIX) or not 24 <= len(key) <= 64:
        raise RequestError(
            422,
            f"a webhook secret must be {_PREFIX} followed by 24 to 64 bytes in base64\n"
            "  hint: leave it out to have one generated, which is shown once",
        )
    return key


def signature(secret: str, name: str, timestamp: int, body: bytes) -> str:
    """Return the signature of a request."""
    signed = f"{name}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key_of(secret), signed, hashlib.sha256)).decode()


def seconds_of(retry_after: str, now: float) -> float | None:
    """Return the delay of a `Retry-After` header, given in seconds or as a date."""
    if retry_after.isdecimal() and len(retry_after) < 10:
        return float(retry_after)
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - now)
    except (TypeError, ValueError, OverflowError):
        return None


async def _drained(response: httpx.Response) -> None:
    size = 0
    async for part in response.aiter_raw():
        size += len(part)
        if size > MAX_ANSWER_BYTES:
            return


@cache
def _tls() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)
