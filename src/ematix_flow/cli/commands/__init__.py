"""The commands of `flow`, one module each, imported when they are called."""
