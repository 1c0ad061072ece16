"""The `cloud-gpu` command: one file a command, gathered by `app`."""
