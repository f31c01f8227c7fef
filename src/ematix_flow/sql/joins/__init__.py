"""Join reordering: the order of inner joins is chosen from table statistics and written into the SQL text."""
