"""What every room may use: errors, source locations, secrets, names and the clock."""
