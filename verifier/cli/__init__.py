"""The `cloud-gpu-verifier` command."""
