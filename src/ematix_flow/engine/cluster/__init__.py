"""Spark clusters: masters, executors, the code that is shipped to them, and a cluster on this machine."""
