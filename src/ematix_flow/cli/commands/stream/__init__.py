"""Commands about streams: consume, stream, dlq."""
