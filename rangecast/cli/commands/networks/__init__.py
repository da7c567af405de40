"""Commands for networks of brokers, and for research."""
