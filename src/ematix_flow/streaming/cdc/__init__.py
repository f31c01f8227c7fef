"""Change data: reads change messages into rows for tables."""
