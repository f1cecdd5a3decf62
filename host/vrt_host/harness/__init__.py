"""Scenarios, faults, recordings and pictures."""
