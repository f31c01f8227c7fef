"""Runs the plan: session, preparation, the walk of the steps, results."""
