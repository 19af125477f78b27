"""
What arrives and leaves asynchronously: events of the log to handlers, S3 events, Kafka, an outbox, alerts.

Read `handler.py` first: what a handler is given and what it returns; it knows neither Kafka nor PostgreSQL's tables.
Then `handling.py` (effects on the log first, poison apart), `runner.py` (the logs as the source, the default) and
`sender.py` (the outbox into its sinks). `leases.py` says how several processes share the work.

Handlers: `alerts.py`, `observe.py` (what was committed behind the gateway), `cloud_events.py`, `lineage.py`,
`s3_handler.py`.
Other sources: `sqs.py`, `kafka_worker.py`. Sinks: `webhook_sink.py`, `kafka_sink.py`. What cannot be handled waits in
`dead_letters.py` for `replay.py`. Nothing is acknowledged to its source before it is in the log.
"""
