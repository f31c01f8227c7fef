"""Modules that every package may use: errors, source locations, secrets, names and the clock."""
