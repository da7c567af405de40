"""HTTP and WebSocket interface: routes, bodies and responses."""
