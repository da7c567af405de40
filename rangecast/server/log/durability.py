"""fsync policy of the SQLite log: which writes are synced, and when.

    --durability    an answered write is            synced by
    fsync           on disk                         SQLite, with each transaction
    interval        on disk within `INTERVAL`       maintenance, which calls `SqliteLog.sync`
    none            with the operating system       the end of its segment

With every policy, a segment and its name are on disk before units are written to it; a start syncs
what a killed process has left, before anything is read; a snapshot and a stop sync the log first.
The end mark (`acknowledged`) is written only after the units up to it are on disk.

A failed sync isn't retried: the kernel may have dropped the pages, so the log accepts nothing more.
The Kafka log has no policy of its own: an answered write is on the brokers that its topic asks for.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from rangecast.model.io.durable import sync_file, sync_folder
from rangecast.server.log.segment import wal_of

FSYNC, INTERVAL_SYNC, NONE = "fsync", "interval", "none"
SYNCHRONOUS = {FSYNC: "FULL", INTERVAL_SYNC: "NORMAL", NONE: "OFF"}
"""SQLite's setting for each policy; with `NORMAL` it syncs at a checkpoint only."""
INTERVAL = 0.05
"""Seconds between two syncs of the policy `interval`."""


def configure(writer: sqlite3.Connection, durability: str) -> None:
    """Enable WAL on a connection, and set the sync level of the policy."""
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute(f"PRAGMA synchronous = {SYNCHRONOUS[durability]}")


def syncs_each_write(durability: str) -> bool:
    """Return whether a write is on disk when it returns."""
    return durability == FSYNC


def syncs_in_intervals(durability: str) -> bool:
    """Return whether maintenance must sync the log every `INTERVAL` seconds."""
    return durability == INTERVAL_SYNC


def checkpoints_sync(durability: str) -> bool:
    """Return whether SQLite syncs a segment when it closes it."""
    return durability != NONE


def sync_segment(path: Path) -> None:
    """Sync a segment: its file, and what SQLite has written ahead."""
    for name in (path, wal_of(path)):
        with contextlib.suppress(FileNotFoundError):  # a checkpoint has removed it
            sync_file(name)


def install_segment(partial: Path, path: Path) -> None:
    """Give a complete segment its name: after a power cut it is there as a whole, or not at all."""
    sync_file(partial)
    partial.replace(path)
    sync_folder(path.parent)
