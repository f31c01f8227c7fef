"""Lakes and folders: one table commit, or one rename."""
