# SPDX-License-Identifier: Apache-2.0
"""
Whether memory stays flat under load: loads and commits at 70 % of the rate that was measured just before.

Ten loads come with each commit, over 16 connections. The memory of all processes is sampled; what it is after the first
third is compared with what it is at the end.
"""

from __future__ import annotations

import statistics
import time
from typing import Final

from bench.gateway.bench import Bench, Part, ratio
from bench.gateway.rates import NAMESPACE, TABLES
from bench.gateway.wrk import Load, Mode, begin, faults_of, wrk_program

CONNECTIONS: Final = 16
LOADS_PER_COMMIT: Final = 10
LOAD_FACTOR: Final = 0.7


def soak(bench: Bench, *, minutes: float) -> Part:
    """Measure the rate, then load with 70 % of it for so many minutes, and sample memory meanwhile."""
    part, scale, seconds = Part(), bench.scale, 60 * minutes
    wrk_program()
    target = bench.up.new_tenant()[1]
    with target.connect() as catalog:
        catalog.make_tables(NAMESPACE, TABLES)
    full = Load(
        mode=Mode.MIXED,
        namespace=NAMESPACE,
        tables=TABLES,
        connections=CONNECTIONS,
        seconds=3 * scale.seconds,
        loads_per_commit=LOADS_PER_COMMIT,
    )
    highest = part.measure(target, full, "before the soak")
    bench.settle()
    per_second = LOAD_FACTOR * highest["per_second"]
    paced = Load(
        mode=Mode.MIXED,
        namespace=NAMESPACE,
        tables=TABLES,
        connections=CONNECTIONS,
        seconds=seconds,
        loads_per_commit=LOADS_PER_COMMIT,
        per_second=per_second,
    )
    running, samples, began_s = begin(target, paced), [], time.monotonic()
    while running.wrk.process.poll() is None:
        samples.append({"at_s": round(time.monotonic() - began_s), **bench.up.memory_mib()})
        time.sleep(scale.sample_s)
    found = running.figures()
    part.faults += faults_of("soak", found)
    busy_s = bench.up.wait_until_quiet()
    third = len(samples) // 3
    early = statistics.median(one["all"] for one in samples[third : 2 * third] or samples)
    late = statistics.median(one["all"] for one in samples[-third:] or samples)
    part.figures = {
        "minutes": minutes,
        "highest_per_second": highest["per_second"],
        "wanted_per_second": round(per_second, 1),
        **found,
        "memory_mib_of_second_third": early,
        "memory_mib_of_last_third": late,
        "memory_ratio": ratio(late, early),
        "busy_afterwards_s": busy_s,
        "samples": samples[:: max(1, len(samples) // 60)],
    }
    return part
