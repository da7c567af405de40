"""Beyond the papers: what they name as future work, and scales that they don't have."""
