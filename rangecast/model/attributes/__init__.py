"""Attribute types, and how each maps a value to one float64 coordinate."""
