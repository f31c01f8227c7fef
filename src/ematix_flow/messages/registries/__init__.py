"""Clients of schema registries."""
