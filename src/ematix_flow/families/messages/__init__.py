"""What messages carry: payloads become rows, rows become payloads, and registries know how they were written."""
