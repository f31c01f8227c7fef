"""A lake in a bucket: objects instead of files, conditions instead of renames."""
