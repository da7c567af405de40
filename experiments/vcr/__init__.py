"""Paper 002: virtual construct rectangles."""
