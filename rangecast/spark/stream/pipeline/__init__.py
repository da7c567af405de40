"""Pipelines: TOML settings -> graph of tables -> streams or batch jobs."""
