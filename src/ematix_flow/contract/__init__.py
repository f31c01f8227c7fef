"""The protocols and values between engine, families and backends: manifest, jobs, commits, shapes, streams."""
