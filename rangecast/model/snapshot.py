"""Snapshots: a folder of arrays that map read-only into memory, with a manifest.

    manifest.json   format, version, kind, meta (plain data), arrays: name -> file, dtype, shape,
                    bytes, sha256; and a sha256 of the manifest itself
    <name>.bin      one array, raw and C-contiguous

The folder is written under another name, flushed to disk, and renamed when it is complete; so it
is there whole or not at all. Reading checks every byte once, unless told not to (`verify=False`
for the many processes of a host that share one snapshot that was checked before).

`save_arrays` and `load_arrays` serve every structure; `save_boxes` and `load_boxes` are the
snapshot of a set of subscriptions.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rangecast.errors import SnapshotError
from rangecast.kernels.arrays import AnyArray
from rangecast.model.boxes import Boxes
from rangecast.model.durable import sync_folder, write_bytes
from rangecast.model.space import Space

FORMAT = "rangecast snapshot"
VERSION = 1
MANIFEST = "manifest.json"
Arrays = dict[str, AnyArray]


def save_arrays(
    path: str | Path,
    kind: str,
    arrays: Mapping[str, AnyArray],
    meta: Mapping[str, Any],
    *,
    overwrite: bool = False,
) -> None:
    """Write a snapshot. One that already exists is refused, or replaced with `overwrite`."""
    target = Path(path)
    check_free(target, overwrite=overwrite)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        partial.mkdir(parents=True)
        listed = {name: _write(partial, name, array) for name, array in arrays.items()}
        body = {"format": FORMAT, "version": VERSION, "kind": kind, "meta": meta, "arrays": listed}
        manifest = body | {"sha256": _digest_of(body)}
        write_bytes(partial / MANIFEST, json.dumps(manifest, indent=1).encode())
        sync_folder(partial)
        _put_in_place(partial, target)
        sync_folder(target.parent)
    except OSError as error:
        raise SnapshotError(f"{path}: can't be written: {error}") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def check_free(path: str | Path, *, overwrite: bool = False) -> None:
    """Refuse a name for a snapshot that something has, unless that may be overwritten."""
    if not os.path.lexists(path):
        return
    if not overwrite:
        raise SnapshotError(
            f"{path}: already exists\n"
            "  to do: save under another name, or replace it with overwrite=True "
            "(in the shell, --overwrite)"
        )
    try:
        _manifest(Path(path))
    except SnapshotError as error:
        raise SnapshotError(
            f"{path}: can't be overwritten, as it isn't a snapshot that could be read: {error}\n"
            "  to do: remove it yourself, or save under another name"
        ) from None


def _put_in_place(partial: Path, target: Path) -> None:
    """Rename a whole snapshot to its name; one that has it makes way first.

    Whoever has mapped the old one keeps it. If the process dies in between, the old one is beside
    its place, under the name `.<name>.<process>.old`.
    """
    old = partial.with_suffix(".old")
    if target.exists():
        target.rename(old)
    try:
        partial.rename(target)
    except OSError:
        if old.exists():
            old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def load_arrays(
    path: str | Path, kind: str, *, verify: bool = True
) -> tuple[Arrays, dict[str, Any]]:
    """Map the arrays of a snapshot into memory, read-only, and return them with the meta data."""
    folder = Path(path)
    manifest = _manifest(folder)
    if manifest["kind"] != kind:
        raise SnapshotError(f"{path}: is a snapshot of {manifest['kind']!r}, expected {kind!r}")
    arrays = {
        name: _map(folder, name, entry, verify=verify) for name, entry in manifest["arrays"].items()
    }
    meta: dict[str, Any] = manifest["meta"]
    return arrays, meta


def save_boxes(path: str | Path, boxes: Boxes, space: Space, *, overwrite: bool = False) -> None:
    """Write a set of subscriptions with its space and the strings that it mentions."""
    counts = {"subscriptions": boxes.rows, "boxes": len(boxes.lo)}
    meta = space_meta(space) | counts
    save_arrays(path, "boxes", box_arrays(boxes), meta, overwrite=overwrite)


def load_boxes(path: str | Path, *, verify: bool = True) -> tuple[Boxes, Space]:
    """Map a set of subscriptions into memory, with its space."""
    arrays, meta = load_arrays(path, "boxes", verify=verify)
    space = space_of_meta(meta)
    return boxes_of_arrays(arrays, space), space


def box_arrays(boxes: Boxes) -> Arrays:
    """Return a set of subscriptions as plain arrays."""
    arrays: Arrays = {"lo": boxes.lo, "hi": boxes.hi, "owner": boxes.owner, "scores": boxes.scores}
    if boxes.weights is not None:
        arrays["weights"] = boxes.weights
    return arrays | id_buffers(boxes.ids)


def boxes_of_arrays(arrays: Mapping[str, AnyArray], space: Space | None) -> Boxes:
    """Return the set of subscriptions of plain arrays, without a copy."""
    bounds = arrays["lo"], arrays["hi"], arrays["owner"]
    return Boxes(*bounds, ids_of_buffers(arrays), arrays["scores"], arrays.get("weights"), space)


def space_meta(space: Space) -> dict[str, Any]:
    """Return a space and the strings that its subscriptions mention, as meta data."""
    return {"space": space.to_toml(), "vocabularies": space.vocabularies}


def space_of_meta(meta: Mapping[str, Any]) -> Space:
    """Return the space of meta data."""
    fixed = Space.from_toml(meta["space"])
    return Space.from_definition(fixed.definition(), meta["vocabularies"])


def with_prefix(prefix: str, arrays: Mapping[str, AnyArray]) -> Arrays:
    """Return the arrays of one part of a set under names of its own."""
    return {prefix + name: array for name, array in arrays.items()}


def without_prefix(prefix: str, arrays: Mapping[str, AnyArray]) -> Arrays:
    """Return the arrays of one part of a set again."""
    return {n.removeprefix(prefix): array for n, array in arrays.items() if n.startswith(prefix)}


def id_buffers(ids: pa.Array) -> Arrays:
    """Return an array of ids as plain arrays."""
    if pa.types.is_integer(ids.type):
        return {"ids": ids.to_numpy()}
    packed = pa.concat_arrays([ids])  # so that the offsets begin at 0
    _, offsets, text = packed.buffers()
    ends = np.frombuffer(offsets, np.int64)[: len(ids) + 1] if len(ids) else np.zeros(1, np.int64)
    ends = ends[packed.offset : packed.offset + len(ids) + 1]
    data = np.frombuffer(text, np.uint8)[: ends[-1]] if text is not None else np.zeros(0, np.uint8)
    return {"id_ends": ends, "id_text": data}


def ids_of_buffers(arrays: Mapping[str, AnyArray]) -> pa.Array:
    """Return the ids of plain arrays, without a copy."""
    if "ids" in arrays:
        return pa.array(arrays["ids"])
    ends, text = arrays["id_ends"], arrays["id_text"]
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.large_string(), len(ends) - 1, buffers)


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        body = {key: value for key, value in manifest.items() if key != "sha256"}
        known, version, digest = manifest["format"], manifest["version"], manifest["sha256"]
    except OSError as error:
        raise SnapshotError(f"{folder}: no snapshot there: {error.strerror}: {MANIFEST}") from None
    except (ValueError, KeyError, AttributeError, TypeError):
        raise SnapshotError(f"{folder}: {MANIFEST} is damaged: restore or rebuild it") from None
    if known != FORMAT:
        raise SnapshotError(f"{folder}: is not a {FORMAT}: its format is {known!r}")
    if version != VERSION:
        raise SnapshotError(
            f"{folder}: has format version {version}, this rangecast reads version {VERSION}; "
            "use the version that wrote it, or build the snapshot anew"
        )
    if digest != _digest_of(body):
        raise SnapshotError(f"{folder}: {MANIFEST} is damaged: restore or rebuild it")
    return body


def _map(folder: Path, name: str, entry: Mapping[str, Any], *, verify: bool) -> AnyArray:
    path = folder / entry["file"]
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size != entry["bytes"]:
                raise SnapshotError(
                    f"{folder}: array {name!r} is truncated: {size} bytes of {entry['bytes']}"
                )
            whole: mmap.mmap | bytes = b""
            if size:
                whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise SnapshotError(f"{folder}: array {name!r} can't be read: {error.strerror}") from None
    if verify and hashlib.sha256(whole).hexdigest() != entry["sha256"]:
        raise SnapshotError(f"{folder}: array {name!r} is damaged: restore or rebuild it")
    return np.frombuffer(whole, dtype=np.dtype(entry["dtype"])).reshape(entry["shape"])


def _write(folder: Path, name: str, array: AnyArray) -> dict[str, Any]:
    data = np.ascontiguousarray(array)
    raw = data.reshape(-1).view(np.uint8).data
    write_bytes(folder / f"{name}.bin", raw)
    return {
        "file": f"{name}.bin",
        "dtype": data.dtype.str,
        "shape": list(data.shape),
        "bytes": data.nbytes,
        "sha256": hashlib.sha256(raw).hexdigest(),
    }


def _digest_of(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
