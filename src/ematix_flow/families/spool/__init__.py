"""A durable spool between a broker without offsets and Spark: kept before it is handed on, acknowledged once committed."""
