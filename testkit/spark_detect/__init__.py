# SPDX-License-Identifier: Apache-2.0
"""Lakehouses, columns of personal data, and Spark for the tests of detection."""
