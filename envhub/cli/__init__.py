"""The command line: parse, load settings, call one run. One file per command."""
