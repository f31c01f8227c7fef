"""Stateful streams: windows, sessions and joins, their state and where it is kept."""
