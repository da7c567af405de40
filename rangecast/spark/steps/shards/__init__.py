"""Sharded sets: cutting, placing and building shards, so that a worker holds only a part."""
