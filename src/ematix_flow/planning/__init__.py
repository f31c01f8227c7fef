"""Pure planning: drift and DDL, path and lane of a load."""
