"""What a market makes durable: inbox, journal and their tables."""
