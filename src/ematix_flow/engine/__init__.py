"""The engine: sessions, read planning, preparation of rows, execution of the steps, and results."""
