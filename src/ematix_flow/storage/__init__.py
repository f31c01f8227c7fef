"""Paths, atomic writes and locks on local disks and in buckets."""
