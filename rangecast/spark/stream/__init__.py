"""Streams: sources, the protocol of a batch, sinks; pipelines made of them."""
