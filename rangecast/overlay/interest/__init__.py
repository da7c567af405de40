"""Interest as brokers exchange it: items, versioned sets, strategies, routing tables."""
