"""The order of inner joins: chosen from statistics of the tables, and written into the statement before Spark sees it."""
