"""Declarations as frozen values, without I/O and without a Spark session."""
