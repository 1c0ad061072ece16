"""The HTTP face of a market."""
