"""Replication: a warm follower copies the log of its leader."""
