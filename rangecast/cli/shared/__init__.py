"""Shared parts of commands: options, run context, output, progress, connections."""
