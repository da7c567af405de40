"""Encoding of tables as coordinates, column by column.

rows (io.batch) -> columns (columns, casts) -> events | subscriptions -> points | Boxes
"""
