"""Tool use over several turns, offline and deterministic by seed."""
