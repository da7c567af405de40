"""The commands, in folders that are the groups of `rangecast --help`."""
