"""Finds the module, the pipelines, the stream and the run log that a command is about."""
