"""Types and protocols that all packages share: backends, reads, writes, schema changes, streams and change data."""
