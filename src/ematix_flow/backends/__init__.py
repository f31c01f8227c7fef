"""The backends: one package per system, each with its `backend` manifest, and the catalog that finds them."""
