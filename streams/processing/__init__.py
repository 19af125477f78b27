# SPDX-License-Identifier: Apache-2.0
"""
The loops that run handlers on the logs and empty the outbox, and the replay of dead letters.
"""
