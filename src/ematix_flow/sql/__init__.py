"""SQL as text: expressions for every dialect, translation into Spark SQL, the order of joins."""
