"""Translates whole statements of other dialects into Spark SQL."""
