"""Client operations, described once for both clients: requests to send, answers to read."""
