"""Verification: the rules (`rules.py`, `tree.py`, pure), and what fetches for them: a directory, a database."""
