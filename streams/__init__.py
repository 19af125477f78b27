"""
What arrives and leaves asynchronously: S3 events, Kafka, an outbox, alerts.

Nothing lives here yet. What will is plain handlers, `handle(batch, transaction) -> effects`, that know neither Kafka
nor Faust, and thin runners around them; nothing is acknowledged to its source before it is in the log.
"""
