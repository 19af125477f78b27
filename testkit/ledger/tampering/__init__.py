# SPDX-License-Identifier: Apache-2.0
"""Classes of tampering with a log, and what verification must find."""
