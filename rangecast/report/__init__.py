"""What people look at: plots in one style, and pages that need nothing beside them."""
