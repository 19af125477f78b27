# SPDX-License-Identifier: Apache-2.0
"""
Sources of messages other than the logs: SQS, Kafka, and the poller of foreign catalogs.
"""
