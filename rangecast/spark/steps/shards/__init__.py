"""Sets in shards: how they are cut, placed and built, so that a worker holds only a part."""
