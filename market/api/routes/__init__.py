"""The API's routes, one noun a file."""
