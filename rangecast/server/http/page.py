"""The page: static files of the package, with headers that let nothing else in."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import FileResponse, Response

from rangecast.server.state.registry import RequestError

router = APIRouter(include_in_schema=False)
FOLDER = Path(__file__).parents[1] / "page"
FILES = frozenset(one.name for one in FOLDER.iterdir())
POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
    "require-trusted-types-for": "'script'",
}
HEADERS = {
    "Content-Security-Policy": "; ".join(f"{what} {who}" for what, who in POLICY.items()),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-cache",
}


@router.api_route("/", methods=["GET", "HEAD"])
async def page() -> Response:
    """Return the page."""
    return await file("index.html")


@router.api_route("/docs", methods=["GET", "HEAD"])
async def docs() -> Response:
    """Return the page of the API."""
    return await file("docs.html")


@router.api_route("/page/{name}", methods=["GET", "HEAD"])
async def file(name: str) -> Response:
    """Return a file of the page."""
    if name not in FILES:
        raise RequestError(404, "the page has no such file")
    return FileResponse(FOLDER / name, headers=HEADERS)
