"""Streams: one Structured Streaming query each, whose micro-batches are written through the batch write path."""
