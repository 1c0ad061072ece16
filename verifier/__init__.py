"""Coordinates audits of verified leases: `cloud-gpu-verifier`."""
