"""Alerts: what is told, to whom, and when it is news."""
