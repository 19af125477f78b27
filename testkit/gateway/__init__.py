# SPDX-License-Identifier: Apache-2.0
"""Tables, requests and upstreams for the tests of the gateway."""
