"""What commands share: options, the frame of a run, output, progress, connections."""
