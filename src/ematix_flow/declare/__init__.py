"""What the user says: frozen values, no I/O, no Spark session."""
