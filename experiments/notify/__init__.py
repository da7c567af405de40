"""Paper 001: range top-k subscriptions."""
