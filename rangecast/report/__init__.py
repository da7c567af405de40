"""Reports for people: plots in one style, and self-contained pages."""
