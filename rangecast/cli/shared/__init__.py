"""Shared parts of commands: options, the frame of a run, output, progress, connections."""
