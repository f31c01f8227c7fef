"""Streams that remember: windows, sessions and joins as folds over micro-batches."""
