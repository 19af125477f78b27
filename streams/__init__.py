# SPDX-License-Identifier: Apache-2.0
"""
What arrives and leaves asynchronously: events of the log to handlers, S3 events, Kafka, an outbox, alerts.

Read `handler.py` first: what a handler is given and what it returns; it knows neither Kafka nor PostgreSQL's tables.
Then `execution.py` (one batch: groups go to the log first, poison is set apart), `processing/runner.py` (the logs as
the source, the default) and `processing/sender.py` (the outbox to its sinks). `state/leases.py` says how several
processes share the work.

`handlers/` are the handlers: `alerts.py`, `observe.py` (commits that bypassed the gateway), `cloud_events.py`,
`lineage.py`, `s3_events.py`. `sources/` are the other sources: `sqs.py`, `kafka_worker.py`, and `poller.py`, which
reads foreign catalogs. `sinks/` are a webhook and Kafka. What cannot be handled waits in `state/dead_letters.py` for
`processing/replay.py`. Nothing is acknowledged to its source before it is in the log.
"""
