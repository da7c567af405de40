"""Blocks: boxes as byte codes in blocks; the covering index that `auto` chooses."""
