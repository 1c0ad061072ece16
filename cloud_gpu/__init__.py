"""Rent GPU time from a market that nobody has to trust."""
