# SPDX-License-Identifier: Apache-2.0
"""
The property graph of a tenant: read `labels.py` (what there is), then `model.py` (what each entry means to it).
"""
