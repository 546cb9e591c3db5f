"""The mathematics: pure functions of arrays, each cited. Import from the file that owns a name."""
