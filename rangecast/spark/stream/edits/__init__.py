"""Edits of a set of subscriptions that arrive as a stream: files, Delta tables, servers."""
