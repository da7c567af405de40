"""Tables to coordinates, column by column.

rows (io.batch) -> columns (columns, casts) -> events | subscriptions -> points | Boxes
"""
