"""Runs a stream: opens it, processes its micro-batches, writes its targets."""
