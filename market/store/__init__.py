"""What a market makes durable: inbox, journal, published rounds, public tables and their news."""
