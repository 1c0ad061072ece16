"""Typed calls and views of the contracts, generated from their ABIs by `make contracts`."""
