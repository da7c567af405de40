"""What a subscription and an event are: space, boxes, filters, files, snapshots."""
