# SPDX-License-Identifier: Apache-2.0
"""
The same rule file at a real Nessie and here: how often the two judge a request differently.

Claim: of `--requests` random requests to each of `--files` servers, none. Each server judges by a file with 49 sets of
random rules over `op`, `ref`, `path`, `contentType`, `role` and `roles`. Each request has a random caller, who has one
of the sets, and is one that both have: to load, change, create or drop tables, views and namespaces on three branches,
to view, create, delete or move a branch, or to list its log. Refused is an answer of 403, or the server's
AccessCheckException; here it is whatever is not permitted.

Run: `python -m bench.access_rules`. The last line is JSON with all figures, and the requests that were judged
differently, with their rules.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from bench.measuring import circumstances, options, publish
from testkit.gateway.ruled_nessie import SETS_MAX, random_caller, random_request, random_rules, start_ruled_nessie
from testkit.servers.cloud import fresh_cloud, start_cloud

DIFFERENCES_KEPT: int = 20


async def compare(cloud: str, *, file: int, requests: int, directory: Path) -> dict[str, Any]:
    """Return what one server and our rules said to so many requests, by one file."""
    random = Random(f"access rules {file}")  # noqa: S311 (repeatable)
    rules = random_rules(random, SETS_MAX)
    permitted: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    differences: list[dict[str, Any]] = []
    with start_ruled_nessie(fresh_cloud(cloud), rules, directory) as ruled:
        for number in range(requests):
            caller, asked = random_caller(random, SETS_MAX), random_request(random, number)
            there, here = ruled.verdict(caller, asked), await ruled.own_verdict(caller, asked)
            (permitted if there else refused)[asked.what] += 1
            if there != here:
                of_set = [rule.expression for rule in ruled.rules if rule.id.startswith(f"{caller.roles[0]}-")]
                differences.append({"asked": str(asked), "caller": str(caller), "nessie": there, "rules": of_set})
    return {
        "rules": len(ruled.rules),
        "permitted": dict(sorted(permitted.items())),
        "refused": dict(sorted(refused.items())),
        "differences": differences,
    }


def main() -> None:
    """Run the bench."""
    parser = options("access_rules", __doc__)
    parser.add_argument("--files", type=int, default=4, help="servers, each with a rule file of its own")
    parser.add_argument("--requests", type=int, default=500, help="requests to each")
    given = parser.parse_args()
    runs = []
    with start_cloud() as cloud:
        for file in range(given.files):
            with tempfile.TemporaryDirectory(prefix="lp-rules-") as directory:
                run = compare(cloud, file=file, requests=given.requests, directory=Path(directory))
                runs.append(asyncio.run(run))
    permitted = sum((Counter(run["permitted"]) for run in runs), Counter[str]())
    refused = sum((Counter(run["refused"]) for run in runs), Counter[str]())
    differences = [each for run in runs for each in run["differences"]]
    found = {
        "files": given.files,
        "sets": given.files * SETS_MAX,
        "rules": sum(run["rules"] for run in runs),
        "requests": permitted.total() + refused.total(),
        "permitted": dict(sorted(permitted.items())),
        "refused": dict(sorted(refused.items())),
        "different": len(differences),
        "differences": differences[:DIFFERENCES_KEPT],
        **circumstances(),
    }
    publish(found, given.results)


if __name__ == "__main__":
    main()
