"""Small pieces of compiled code that several structures share."""
