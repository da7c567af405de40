"""Snapshots: a folder of arrays that are memory-mapped read-only, with a manifest.

    manifest.json   format, version, kind, meta (plain data), arrays: name -> file, dtype, shape,
                    bytes, sha256; and a sha256 of the manifest itself
    <name>.bin      one array, raw and C-contiguous

The folder is written under a temporary name, flushed to disk, and renamed when it is complete, so
it appears whole or not at all. Reading verifies all checksums, unless `verify=False`, for many
processes on a host that share a snapshot that was verified before.

`save_arrays` and `load_arrays` serve every structure; `save_boxes` and `load_boxes` are for sets
of subscriptions.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

from rangecast.errors import SnapshotError
from rangecast.kernels.arrays import AnyArray
from rangecast.model.boxes import Boxes
from rangecast.model.io.atomic import atomic_folder
from rangecast.model.io.durable import write_bytes
from rangecast.model.space import Space
from rangecast.model.validation.flags import flag

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
    """Write a snapshot. An existing one is an error, or replaced with `overwrite`."""
    target = Path(path)
    check_free(target, overwrite=overwrite)
    try:
        with atomic_folder(target, overwrite=overwrite) as folder:
            listed = {name: _write(folder, name, array) for name, array in arrays.items()}
            body = {"format": FORMAT, "version": VERSION, "kind": kind, "meta": meta}
            body |= {"arrays": listed}
            manifest = body | {"sha256": _digest_of(body)}
            write_bytes(folder / MANIFEST, json.dumps(manifest, indent=1).encode())
    except FileExistsError:  # another writer was faster
        check_free(target, overwrite=overwrite)
        raise SnapshotError(f"{path}: already exists") from None
    except OSError as error:
        raise SnapshotError(f"{path}: can't be written: {error}") from None


def check_free(path: str | Path, *, overwrite: bool = False) -> None:
    """Reject a path that exists, unless it is a snapshot that may be overwritten."""
    flag("overwrite", overwrite)
    if not os.path.lexists(path):
        return
    if not overwrite:
        raise SnapshotError(
            f"{path}: already exists\n"
            "  hint: save under another name, or replace it with overwrite=True"
        )
    try:
        with _opened(Path(path)) as folder:
            folder.manifest()
    except SnapshotError as error:
        raise SnapshotError(
            f"{path}: can't be overwritten, as it isn't a readable snapshot: {error}\n"
            "  hint: remove it yourself, or save under another name"
        ) from None


def load_arrays(
    path: str | Path, kind: str, *, verify: bool = True
) -> tuple[Arrays, dict[str, Any]]:
    """Memory-map the arrays of a snapshot, read-only, and return them with the metadata."""
    while True:
        with _opened(Path(path)) as folder:
            try:
                return _load(folder, kind, verify=verify)
            except SnapshotError:
                if not folder.was_replaced():
                    raise  # else: it was overwritten while it was read


def _load(folder: _Folder, kind: str, *, verify: bool) -> tuple[Arrays, dict[str, Any]]:
    manifest = folder.manifest()
    if manifest["kind"] != kind:
        raise SnapshotError(
            f"{folder.path}: is a snapshot of {manifest['kind']!r}, expected {kind!r}"
        )
    listed = manifest["arrays"].items()
    arrays = {name: folder.map(name, entry, verify=verify) for name, entry in listed}
    meta: dict[str, Any] = manifest["meta"]
    return arrays, meta


def drop_pages(array: AnyArray) -> None:
    """Let go of the memory of a mapped array; its pages are read again when they are needed."""
    base: Any = array
    while isinstance(base, np.ndarray | memoryview):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        base.madvise(mmap.MADV_DONTNEED)


def save_boxes(path: str | Path, boxes: Boxes, space: Space, *, overwrite: bool = False) -> None:
    """Write a set of subscriptions with its space and vocabularies."""
    counts = {"subscriptions": boxes.rows, "boxes": len(boxes.lo)}
    meta = space_meta(space) | counts
    save_arrays(path, "boxes", box_arrays(boxes), meta, overwrite=overwrite)


def load_boxes(path: str | Path, *, verify: bool = True) -> tuple[Boxes, Space]:
    """Memory-map a set of subscriptions; return it with its space."""
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
    """Return the set of subscriptions from plain arrays, without copying."""
    bounds = arrays["lo"], arrays["hi"], arrays["owner"]
    return Boxes(*bounds, ids_of_buffers(arrays), arrays["scores"], arrays.get("weights"), space)


def space_meta(space: Space) -> dict[str, Any]:
    """Return a space and its vocabularies as metadata."""
    return {"space": space.to_toml(), "vocabularies": space.vocabularies}


def space_of_meta(meta: Mapping[str, Any]) -> Space:
    """Return the space from metadata."""
    fixed = Space.from_toml(meta["space"])
    return Space.from_definition(fixed.definition(), meta["vocabularies"])


def with_prefix(prefix: str, arrays: Mapping[str, AnyArray]) -> Arrays:
    """Add a prefix to the names of arrays."""
    return {prefix + name: array for name, array in arrays.items()}


def without_prefix(prefix: str, arrays: Mapping[str, AnyArray]) -> Arrays:
    """Return the arrays with a prefix, under their original names."""
    return {n.removeprefix(prefix): array for n, array in arrays.items() if n.startswith(prefix)}


def id_buffers(ids: pa.Array) -> Arrays:
    """Return an Arrow array of ids as plain arrays."""
    if pa.types.is_integer(ids.type):
        return {"ids": ids.to_numpy()}
    packed = pa.concat_arrays([ids.cast(pa.large_string())])  # so that the offsets begin at 0
    _, offsets, text = packed.buffers()
    ends = np.frombuffer(offsets, np.int64)[: len(ids) + 1] if len(ids) else np.zeros(1, np.int64)
    ends = ends[packed.offset : packed.offset + len(ids) + 1]
    data = np.frombuffer(text, np.uint8)[: ends[-1]] if text is not None else np.zeros(0, np.uint8)
    return {"id_ends": ends, "id_text": data}


def ids_of_buffers(arrays: Mapping[str, AnyArray]) -> pa.Array:
    """Return ids from plain arrays, without copying."""
    if "ids" in arrays:
        return pa.array(arrays["ids"])
    ends, text = arrays["id_ends"], arrays["id_text"]
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.large_string(), len(ends) - 1, buffers)


class _Folder:
    """Open snapshot folder: all files belong to one version, even if it is overwritten."""

    def __init__(self, path: Path, handle: int):
        self.path = path
        self._handle = handle

    def was_replaced(self) -> bool:
        """Return whether the path now refers to another folder, or to none."""
        try:
            return not os.path.samestat(self.path.stat(), os.fstat(self._handle))
        except OSError:
            return True

    def _open(self, name: str) -> IO[bytes]:
        def opener(file: str, flags: int) -> int:
            return os.open(file, flags, dir_fd=self._handle)

        return open(name, "rb", opener=opener)

    def manifest(self) -> dict[str, Any]:
        """Return the manifest, without its checksum."""
        try:
            with self._open(MANIFEST) as file:
                manifest = json.loads(file.read())
            body = {key: value for key, value in manifest.items() if key != "sha256"}
            known, version, digest = manifest["format"], manifest["version"], manifest["sha256"]
        except OSError as error:
            raise _missing(self.path, error) from None
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            raise SnapshotError(
                f"{self.path}: {MANIFEST} is damaged: restore or rebuild it"
            ) from None
        if known != FORMAT:
            raise SnapshotError(f"{self.path}: is not a {FORMAT}: its format is {known!r}")
        if version != VERSION:
            raise SnapshotError(
                f"{self.path}: has format version {version}; this version of rangecast reads "
                f"{VERSION}; use the version that wrote it, or rebuild the snapshot"
            )
        if digest != _digest_of(body):
            raise SnapshotError(f"{self.path}: {MANIFEST} is damaged: restore or rebuild it")
        return body

    def map(self, name: str, entry: Mapping[str, Any], *, verify: bool) -> AnyArray:
        """Memory-map an array."""
        try:
            with self._open(entry["file"]) as file:
                size = os.fstat(file.fileno()).st_size
                if size != entry["bytes"]:
                    raise SnapshotError(
                        f"{self.path}: array {name!r} is truncated: {size} bytes of "
                        f"{entry['bytes']}"
                    )
                whole: mmap.mmap | bytes = b""
                if size:
                    whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise SnapshotError(
                f"{self.path}: array {name!r} can't be read: {error.strerror}"
            ) from None
        if verify and hashlib.sha256(whole).hexdigest() != entry["sha256"]:
            raise SnapshotError(f"{self.path}: array {name!r} is damaged: restore or rebuild it")
        return np.frombuffer(whole, dtype=np.dtype(entry["dtype"])).reshape(entry["shape"])


@contextmanager
def _opened(path: Path) -> Iterator[_Folder]:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise _missing(path, error) from None
    try:
        yield _Folder(path, handle)
    finally:
        os.close(handle)


def _missing(path: Path, error: OSError) -> SnapshotError:
    return SnapshotError(f"{path}: no snapshot found: {error.strerror}: {MANIFEST}")


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
