"""Model of subscriptions and events: space, boxes, filters, files, snapshots."""
