"""SQL that the engine runs: sources, statements over several connections, the user's functions."""
