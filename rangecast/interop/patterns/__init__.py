"""Patterns of EventBridge and SNS: `reader` makes rules of them, `writer` makes them of boxes."""
