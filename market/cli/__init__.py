"""The `cloud-gpu-market` command."""
