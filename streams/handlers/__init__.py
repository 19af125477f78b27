"""
The handlers: plain functions from a batch of messages to effects. They know neither Kafka nor cursors.
"""
