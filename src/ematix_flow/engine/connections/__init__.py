"""Live connections: open one, and check whether its system answers."""
