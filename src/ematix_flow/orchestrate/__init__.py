"""People and clocks: what is due, and making it happen."""
