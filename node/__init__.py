"""A provider's daemon: probes its hardware, prices it, runs jobs and meters them."""
