"""Networks of brokers in one process: topologies, and scenarios that run on them."""
