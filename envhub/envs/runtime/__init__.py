"""Environments in processes and virtual environments of their own, so that conflicting pins cannot hurt."""
