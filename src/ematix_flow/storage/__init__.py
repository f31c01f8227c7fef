"""Paths, atomic writes, object stores, leases and file locks."""
