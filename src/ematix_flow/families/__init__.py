"""How each kind of system implements the load strategies atomically."""
