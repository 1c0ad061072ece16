"""The outside world of a node: hardware probes and job runtimes."""
