"""Stateful streams: windows, sessions and joins, whose state is updated by each micro-batch."""
