"""Installations and machines for the tests of the commands and of the embedded server."""
