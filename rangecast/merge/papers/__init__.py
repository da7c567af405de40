"""Structures of paper 004 that summaries don't need: bounding boxes, attribute subsets, links."""
