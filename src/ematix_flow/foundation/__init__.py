"""Errors, locations, secrets, names, clock: what every package may use."""
