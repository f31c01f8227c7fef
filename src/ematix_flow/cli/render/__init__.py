"""Formats results, errors and progress for terminals and JSON."""
