"""The native engine (Sail): its server in this process, and what it computes differently."""
