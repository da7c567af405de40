"""Client operations, shared by both clients: requests to send, answers to decode."""
