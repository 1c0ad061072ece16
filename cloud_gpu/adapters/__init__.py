"""The outside world of a buyer: market over HTTP, node streams, devnet, toolchain."""
