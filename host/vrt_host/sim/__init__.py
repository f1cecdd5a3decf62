"""The simulated board."""
