"""Boards whose interests are a range on one attribute and an upper bound on another."""
