"""What is known: orders at rest, the picture of the chain, positions, pledges. Decides nothing."""
