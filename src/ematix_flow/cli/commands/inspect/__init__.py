"""Commands that show what has run: status, runs, logs."""
