"""
Where outbox messages go: a webhook, a Kafka topic.
"""
