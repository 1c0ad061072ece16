"""The `cloud-gpu-node` command."""
