"""The outside world of a market besides HTTP and the database: overlay, chain, inbox to events."""
