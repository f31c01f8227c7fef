"""Lakes and folders: sources, DDL helpers, and strategies that publish by one commit or one rename."""
