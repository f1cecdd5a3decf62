"""Model adapters: what answers the user."""
