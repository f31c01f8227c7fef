"""The backends: one package per system, and the catalog that finds them."""
