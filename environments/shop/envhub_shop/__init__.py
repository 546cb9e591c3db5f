"""A small web shop as text."""
