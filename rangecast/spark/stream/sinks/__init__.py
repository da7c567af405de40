"""Sinks of a stream: files, Delta tables; one commit per batch."""
