"""Prices as information: settled leases' index, futures' forward curve. Nothing is paid by them."""
