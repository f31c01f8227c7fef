"""Streams: one Structured Streaming query each, every micro-batch through the same write path as a batch load."""
