"""Content-based publish/subscribe over ranges.

Names load when they are first used, so that `import rangecast` is light.
"""
