"""Lakes and folders: a load is published by one table commit or one rename."""
