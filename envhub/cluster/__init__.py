"""Where things run: this machine's processes, or the actors of a Ray cluster."""
