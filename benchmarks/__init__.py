"""One runnable module a published number: `python -m benchmarks.NAME` prints a table, then JSON."""
