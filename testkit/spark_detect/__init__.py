"""Lakehouses, columns of personal data, and Spark for the tests of detection."""
