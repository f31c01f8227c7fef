"""A durable spool between a broker without offsets and Spark: messages are stored first, acknowledged after commit."""
