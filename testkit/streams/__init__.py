"""Handlers, tenants and processes for the tests of the streams."""
