"""A market: takes verified orders in, clears them in rounds and posts the matches."""
