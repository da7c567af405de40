"""Slabs: events as bitmaps, boxes in blocks; the general structure, and what auto takes."""
