"""Looks after streams that exist: status, checkpoint checks, rewinds."""
