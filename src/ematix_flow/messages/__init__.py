"""Message payloads decoded to rows, rows encoded as payloads, and the schema registries that hold their schemas."""
