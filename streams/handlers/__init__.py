# SPDX-License-Identifier: Apache-2.0
"""
The handlers: plain functions from a batch of messages to effects. They know neither Kafka nor cursors.
"""
