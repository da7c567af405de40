"""Scores: combined weights of relaxed ranking, and factors that depend on the event."""
