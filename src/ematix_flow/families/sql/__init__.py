"""Databases: rows, token and watermark in one transaction."""
