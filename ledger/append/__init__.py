"""
How the Appender writes: from callers that wait to a COMMIT that is answered.

Read `appender.py` first: what callers are promised. `writer.py` makes one transaction after another, the next one
opened behind the COMMIT before. `queue.py` is who waits, `batch.py` one transaction, statement by statement, `wire.py`
how statements and rows reach the server. The rules of what becomes of a group are none of this: they are pure, in
`format/sequence.py`.
"""
