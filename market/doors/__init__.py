"""Who may come in: each kind of order is checked here before any book sees it."""
