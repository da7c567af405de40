"""Live sets of subscriptions: ids and their rows, arrays that only grow, immutable views."""
