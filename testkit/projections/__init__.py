"""Histories for the tests of the projections."""
