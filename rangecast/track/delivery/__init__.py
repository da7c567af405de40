"""Delivery of transitions.

transitions -> Notifier -> deduplicate -> throttle -> at once, or a digest -> Notifications
reminders of stays ----^
"""
