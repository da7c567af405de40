"""Commands that run or call a server."""
