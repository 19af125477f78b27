"""
How a catalog mutation becomes a change and its record: the commit flow, and what it alone is made of.

`commit_flow.py` is the file to read: it names the fourteen steps and calls them in order. `judgement.py` asks the
policy engine, `events.py` makes the log's events, `swapping.py` and `forwarding.py` make the change.
"""
