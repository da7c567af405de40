"""HTTP and WebSocket: paths, bodies and answers. What they mean is in the folder above."""
