"""How a kind of system realises every strategy atomically."""
