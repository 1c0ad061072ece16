"""The verifier's way to the outside world."""
