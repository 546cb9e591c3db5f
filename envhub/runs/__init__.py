"""Composition roots: every object of a run is built here, by hand, in order."""
