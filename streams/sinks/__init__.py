# SPDX-License-Identifier: Apache-2.0
"""
Where outbox messages go: a webhook, a Kafka topic.
"""
