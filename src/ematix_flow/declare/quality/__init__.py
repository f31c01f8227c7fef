"""Checks of the rows of a load, as frozen values."""
