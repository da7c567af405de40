"""Parts that several matching structures share."""
