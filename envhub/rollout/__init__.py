"""Tasks in, trajectory groups out. Import from the file that owns a name."""
