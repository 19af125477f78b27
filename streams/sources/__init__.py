"""
Sources of messages other than the logs: SQS, Kafka, and the poller of foreign catalogs.
"""
