"""
The loops that run handlers on the logs and empty the outbox, and the replay of dead letters.
"""
