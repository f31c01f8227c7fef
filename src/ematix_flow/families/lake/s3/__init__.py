"""Lakes in a bucket: objects instead of files, conditional writes instead of renames."""
