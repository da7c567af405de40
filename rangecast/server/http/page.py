"""The web page: static files of the package, with a strict content security policy."""

from __future__ import annotations

import re
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, Response

from rangecast.errors import UsageError
from rangecast.server.state.registry import RequestError

router = APIRouter(include_in_schema=False)
FOLDER = Path(__file__).parents[1] / "page"
FILES = frozenset(
    path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file()
)
POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
    "require-trusted-types-for": "'script'",
}
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-cache",
}
_TILES = re.compile(
    r"(https?://(?:[a-z0-9.-]+|\[[0-9a-f:]+\])(?::[0-9]{1,5})?)/[!-~]*", re.IGNORECASE
)


def tile_origin(url: str) -> str:
    """Return the origin of the map tiles; reject an invalid tile URL."""
    match = _TILES.fullmatch(url)
    if match is None or not all(part in url for part in ("{z}", "{x}", "{y}")):
        raise UsageError(
            f"--map-tiles must be a URL with {{z}}, {{x}} and {{y}}; given: {url!r}\n"
            "  hint: https://tiles.example.org/{z}/{x}/{y}.png"
        )
    return match[1]


def _headers(images: str = "") -> dict[str, str]:
    """Return the headers of a file; `images`: an additional origin allowed for images."""
    policy = POLICY | {"img-src": f"'self' {images}".rstrip()}
    text = "; ".join(f"{directive} {sources}" for directive, sources in policy.items())
    return {"Content-Security-Policy": text, **HEADERS}


@router.api_route("/", methods=["GET", "HEAD"])
async def page(request: Request) -> Response:
    """Return the page."""
    tiles = request.app.state.map_tiles
    headers = _headers("" if tiles is None else tile_origin(tiles))
    return FileResponse(FOLDER / "index.html", headers=headers)


@router.api_route("/docs", methods=["GET", "HEAD"])
async def docs() -> Response:
    """Return the page of the API."""
    return await file("docs/docs.html")


@router.api_route("/page/{name:path}", methods=["GET", "HEAD"])
async def file(name: str) -> Response:
    """Return a file of the page."""
    if name not in FILES:
        raise RequestError(404, "the page has no such file")
    return FileResponse(FOLDER / name, headers=_headers())
