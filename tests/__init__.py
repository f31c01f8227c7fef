"""The tests, and the real servers they run against."""
