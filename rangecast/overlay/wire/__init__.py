"""The frames between brokers, and boxes packed into bytes."""
