"""Imported and exported polygons: cuts at the antimeridian, and notes on inexact input."""
