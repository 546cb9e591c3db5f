"""Groups in, new weights out. Import from the file that owns a name; this page loads no torch."""
