"""Databases: sessions, dialects, DDL, and strategies that publish rows, token and watermark in one transaction."""
