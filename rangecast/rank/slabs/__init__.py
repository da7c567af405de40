"""Slabs: boxes by score in bands of byte codes; the general ranking structure."""
