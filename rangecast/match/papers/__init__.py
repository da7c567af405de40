"""The papers' matching structures; auto never takes them."""
