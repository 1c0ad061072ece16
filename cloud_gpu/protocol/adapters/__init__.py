"""The outside world every party shares: runner, chain, gossip, artifacts, clock."""
