# SPDX-License-Identifier: Apache-2.0
"""What tests and benches share: servers, logs, faults and simulators. Nothing that is installed imports it."""
