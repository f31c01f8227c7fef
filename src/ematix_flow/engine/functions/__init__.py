"""The user's functions inside Spark SQL: found in the text, typed, registered, and aggregated part by part."""
