"""User functions in Spark SQL: found in the statement, type-checked, registered, and partially aggregated."""
