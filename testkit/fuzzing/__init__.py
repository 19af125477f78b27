"""The parsers that are fuzzed, with their seeds."""
