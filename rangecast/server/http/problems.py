"""Errors as HTTP responses: RFC 9457 problems, with the library's messages."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from rangecast.errors import (
    DuplicateIdError,
    FilterError,
    RangecastError,
    UnknownIdError,
    UsageError,
    abbreviate,
    for_interface,
)
from rangecast.server.delivery.messages import PositionError
from rangecast.server.log.base import LogError, LogFullError
from rangecast.server.state.history.histories import DroppedSeqError
from rangecast.server.state.lineage import LostPositionError
from rangecast.server.state.registry import RequestError

_NO_SUCH_PATH = (HTTPStatus.NOT_FOUND.phrase, HTTPStatus.METHOD_NOT_ALLOWED.phrase)
"""Detail of the router's answer to an unknown path."""


def status_of(error: RangecastError) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, RequestError):
        return error.status
    if isinstance(error, UnknownIdError):
        return 404
    if isinstance(error, DuplicateIdError):
        return 412
    if isinstance(error, LogFullError):
        return 507
    if isinstance(error, LogError):
        return 503
    return 409 if isinstance(error, PositionError) else 422


def problem(status: int, detail: str, code: str = "", **more: Any) -> JSONResponse:
    """Return a problem response; the default code is derived from the status."""
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status}
    more["code"] = code or code_of_status(status)
    headers = {"Retry-After": "1"} if status in (429, 503, 507) else {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(
        body | {"detail": detail} | more,
        status,
        headers=headers,
        media_type="application/problem+json",
    )


def problem_of(error: RangecastError | HTTPException) -> JSONResponse:
    """Return an error as a problem response."""
    if isinstance(error, HTTPException):
        detail = str(error.detail)
        if detail in _NO_SUCH_PATH:
            detail += ": no such path, or not with this method\n  hint: /docs lists all"
        return problem(error.status_code, detail)
    more: dict[str, Any] = {}
    if isinstance(error, FilterError) and error.span is not None:
        more = {"reason": error.reason.partition("\n")[0], "hint": error.hint}
        more["span"] = error.span
    if isinstance(error, LostPositionError):
        more = {"gap": {"after": error.given[:80], "upto": error.upto, "reason": "history"}}
    if isinstance(error, DroppedSeqError):
        more = {"earliest": error.earliest}
    return problem(status_of(error), for_interface(str(error), "http"), error.code, **more)


def code_of_status(status: int) -> str:
    """Return the code for a status that no library error has, such as `not_found` for 404."""
    return HTTPStatus(status).name.lower()


def install(app: FastAPI) -> None:
    """Respond to every error with a problem document."""

    @app.exception_handler(RangecastError)
    async def _ours(_request: Request, error: RangecastError) -> JSONResponse:
        return problem_of(error)

    @app.exception_handler(RequestValidationError)
    async def _invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if first["loc"] == ("body",) and kind and not kind.endswith(("/json", "+json")):
            return problem(
                415,
                f"the body has type {abbreviate(kind)}; expected: JSON\n"
                "  hint: send the header `Content-Type: application/json`",
            )
        where = ".".join(str(part) for part in first["loc"])
        return problem(422, f"{where}: {first['msg']}", UsageError.code)

    @app.exception_handler(HTTPException)
    async def _plain(_request: Request, error: HTTPException) -> JSONResponse:
        return problem_of(error)
