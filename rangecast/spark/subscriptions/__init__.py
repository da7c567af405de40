"""Subscriptions of a DataFrame as boxes, on their way to the structure that is built over them.

rows of a DataFrame --encode--> rows of boxes --packs--> thousands of rows in one value
packed_boxes: a box as bytes          spool: on a local master, in a file
"""
