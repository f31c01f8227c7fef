"""Alerts: their events, their alerters, and the rule which events are sent."""
