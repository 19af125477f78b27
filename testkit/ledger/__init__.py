"""Logs, signers, witnesses and broken connections for the tests of the log."""
