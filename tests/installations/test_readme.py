# SPDX-License-Identifier: Apache-2.0
"""
The README's first steps and the pages that continue them work as they stand: every block is run, in order.
"""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from testkit.environment import PROJECT
from testkit.servers.commands import forked_commands
from testkit.system.documents import CONTINUED, TIMEOUT_S, Reader, blocks_of, reader_environment

PORT = "8181"
LANGUAGES = ("sh", "python")


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return str(listener.getsockname()[1])


@contextmanager
def terminal(folder: Path, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """`lakeproof up` in a terminal of its own, ended as Ctrl-C ends it."""
    process = subprocess.Popen(
        ["lakeproof", "up"],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if "listens on" in line:
                break
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate(timeout=TIMEOUT_S)
        assert "Traceback" not in printed


def test_the_first_steps_of_the_readme_work_in_order_and_so_do_the_pages_that_continue_them(
    age: Path, short_directory: Callable[[], AbstractContextManager[Path]]
) -> None:
    port = free_port()
    # No step waits for a virtual machine that scans.
    variables = {"LAKEPROOF_PORT": port, "LAKEPROOF_CACHE": str(age.parent), "LAKEPROOF_DETECT": "0"}
    blocks = blocks_of("README.md", *LANGUAGES, section="First steps")
    serving = blocks.index(("sh", "lakeproof up\n"))
    with short_directory() as directory, forked_commands(directory) as programs:
        folder = directory / "reader"
        folder.mkdir()
        shutil.copy(PROJECT / "verify_lakeproof.py", folder)
        environment = reader_environment(programs) | variables
        reader = Reader(folder=folder, environment=environment, exchanged={PORT: port})
        reader.run(blocks[:serving])
        with terminal(folder, reader_environment() | variables) as up:
            printed = {"README.md": reader.run(blocks[serving + 1 :])}
            printed |= {page: reader.run(blocks_of(page, *LANGUAGES)) for page in CONTINUED}
        assert up.returncode == 0
    check_what_was_printed(printed)


def check_what_was_printed(printed: Mapping[str, str]) -> None:
    assert "NOT WITNESSED" in printed["README.md"]
    assert re.search("^OK", printed["README.md"], re.MULTILINE)
    first_hours = printed["docs/first-hours.md"]
    assert "finance-writers" in first_hours
    assert "scan.requested" in first_hours
    assert re.search(r"^OK.*^BROKEN", first_hours, re.MULTILINE | re.DOTALL)
    audited = printed["docs/auditing.md"]
    assert "PREFIX NOT RE-READ" in audited
    assert len(re.findall("^OK", audited, re.MULTILINE)) >= 7
    recorded = printed["docs/event-store.md"]
    assert re.search(r"^Buy oat milk\n.*Note\.Written.*Note\.Amended", recorded, re.MULTILINE)
    assert re.search("recorded events.*^OK", recorded, re.MULTILINE | re.DOTALL)
    assert "analysts" in printed["docs/access-rules.md"]
    assert "1 access rules of application.properties are now in force" in printed["docs/access-rules.md"]
    assert "2 access rules of rules.cedar are now in force" in printed["docs/access-rules.md"]
    policies = printed["docs/policies.md"]
    for said in (
        "orders-keep-tenant: 2 of 2 examples hold, 4 of 4 directions of branches taken, 4 of 4 mutants killed (100 %)",
        '3:28: survived: the operand (c.name == "tenant_id") of && dropped',
        "orders-keep-tenant: 4 of 4 examples hold, 10 of 10 mutants killed (100 %)",
    ):
        assert said in policies
    assert "looked at 1, found nothing" in policies
    assert "quadratic" in policies
    steps = re.findall(r"^(create|change) +orders-keep-tenant +(\S+) +(yes|-)", policies, re.MULTILINE)
    assert steps == [("create", "-", "-"), ("create", "1", "yes"), ("change", "2", "yes")]
    assert "Keep the column tenant_id" in policies
    assert "policy orders-keep-tenant of tenant acme is out of force" in policies
