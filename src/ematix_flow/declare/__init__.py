"""Declarations: frozen values, no I/O, no Spark session."""
