"""The model: reads a server's files and what clients noted, and says which promises are broken.

A process of its own, with code of its own: it imports nothing of rangecast.
"""
