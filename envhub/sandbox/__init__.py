"""Runs code that nobody trusts, away from everything else."""
