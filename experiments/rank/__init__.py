"""Paper 003: ranked publish/subscribe."""
