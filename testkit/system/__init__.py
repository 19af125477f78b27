"""Whole installations for the tests across packages."""
