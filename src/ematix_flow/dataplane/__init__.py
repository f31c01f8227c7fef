"""Moves rows: the Spark session, tasks, Arrow batches, Parquet stages and the types in which rows travel."""
