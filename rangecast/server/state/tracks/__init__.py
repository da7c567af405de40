"""Tracks of spaces.

options       what a request may set
spaces        one tracker per space with a key, over its tracked subscriptions
notices       delivery policies, and the transitions that wait in digests
transitions   those in the log
"""
