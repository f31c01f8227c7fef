"""Backfills: plan windows of the past, load them with one or several workers, and list what is missing."""
