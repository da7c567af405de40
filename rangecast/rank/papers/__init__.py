"""The ranking structures of paper 003; auto never takes them."""
