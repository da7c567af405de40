"""Live sets of subscriptions: ids and their rows, append-only arrays, immutable views."""
