"""The pages and lines that show runs. Import from the file that owns a name."""
