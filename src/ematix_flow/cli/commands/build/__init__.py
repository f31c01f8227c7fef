"""Commands for writing pipelines: init, list, preview, validate, dry-run."""
