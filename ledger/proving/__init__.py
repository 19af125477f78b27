"""
What is handed out of a log: proofs, receipts, exports, published files, look-ups and evidence.

`prove.py` makes one proof, `receipts.py` thousands for those who have just appended. `export.py` writes a log as a
directory, `publishing.py` serves the same files one by one. `looking.py` finds entries for people, and `evidence/` puts
what is proven about a decision, a table or a period into one file.
"""
