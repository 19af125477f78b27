# SPDX-License-Identifier: Apache-2.0
"""
What an auditor does in the scene: export, verify with the database out of reach, tamper with copies, check a proof.

Every act is a command an auditor types, run as a process of its own; what it prints is what the scene shows.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lakeproof.demo.command import Ran, run_command, run_verifier
from lakeproof.demo.scene_run import SceneRun
from lakeproof.demo.waiting import until
from lakeproof.serving.in_process import Serving
from lakeproof.signing import latest_checkpoint_size
from ledger.store.read import Log, read_head

VERIFIED, BROKEN = 0, 1


async def auditor_verifies(run: SceneRun) -> None:
    """Export, verify, tamper, prove; and verify the logs of earlier runs again."""
    if run.refused_index is None:
        raise AssertionError("the refusal of the third act has no index")
    auditor = Auditor(serving=run.serving, say=run.say)
    await auditor.audit(await run.log(), refused_index=run.refused_index)
    await auditor.verify_again(run.earlier)


@dataclass(frozen=True, slots=True, kw_only=True)
class Auditor:
    """Audits one installation; `say` shows what is done and found."""

    serving: Serving
    say: Callable[[str], None]

    async def audit(self, log: Log, *, refused_index: int) -> None:
        """
        Export and verify `log`, find two faults in copies, and check a proof of entry `refused_index`.

        Raises:
            AssertionError: if a command does not end as it must.
        """
        key = self.serving.services.installation.verifier_key(log.origin).format()
        await self._checkpointed(log)
        folder = Path(tempfile.mkdtemp(prefix="lakeproof-audit-"))
        try:
            export = folder / "log"
            await self._run("ledger", "export", log.origin, str(export), expect=VERIFIED)
            self.say(f"   exported; verifier key {key}")
            self.say("   $ lakeproof ledger verify log --key …   (no database: its address leads nowhere)")
            self._show(await self._offline("ledger", "verify", str(export), "--key", key, expect=VERIFIED))
            self.say("   $ python3 -I verify_lakeproof.py log --key …   (one file, nothing of ours installed)")
            self._show(await run_verifier(str(export), "--key", key, expect=VERIFIED))
            await self._tampered(folder, export, key, "entry", "tile/entries/**/*")
            await self._tampered(folder, export, key, "tile", "tile/0/**/*")
            await self._proven(folder, log, key, refused_index)
            await self._evident(folder, log, key, refused_index)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    async def verify_again(self, logs: list[Log]) -> None:
        """
        Verify the logs of earlier runs, from the database.

        Raises:
            AssertionError: if one of them does not verify.
        """
        for log in logs:
            await self._run("ledger", "verify", "--log", log.origin, expect=VERIFIED)
        if logs:
            self.say(f"   logs of earlier runs, verified again: {len(logs)}")

    async def _tampered(self, folder: Path, export: Path, key: str, what: str, pattern: str) -> None:
        """Change one byte of one file in a copy and see it found."""
        copy = folder / f"tampered-{what}"
        shutil.copytree(export, copy)
        file = min(path for path in copy.glob(pattern) if path.is_file())
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 0x01
        file.write_bytes(data)
        self.say(f"   one bit of {file.relative_to(copy)} changed in a copy:")
        self._show(await self._offline("ledger", "verify", str(copy), "--key", key, expect=BROKEN))

    async def _proven(self, folder: Path, log: Log, key: str, index: int) -> None:
        proof = folder / "refusal.tlog-proof"
        await self._run("ledger", "prove", log.origin, str(index), "--out", str(proof), expect=VERIFIED)
        self.say(f"   the refusal as one file of {proof.stat().st_size:,} bytes:")
        self.say("   $ lakeproof ledger check-proof refusal.tlog-proof --key …")
        checked = await self._offline("ledger", "check-proof", str(proof), "--key", key, expect=VERIFIED)
        entry, end, verdict = checked.output.partition("\n}\n")
        event = json.loads(entry + end)["event"]
        decision, reason = event["data"]["decision"], event["data"]["reason"]
        self.say(f"     {event['type']} {event['key']}: {decision} by {reason['id']} v{reason['version']}")
        self._show(Ran(code=checked.code, output=verdict))

    async def _evident(self, folder: Path, log: Log, key: str, index: int) -> None:
        """Hand over the refusal and who requested it, which no export holds, and let two programs check both."""
        file = folder / "refusal.evidence"
        chosen = ("--decision", str(index), "--part", "principal", "--out", str(file), "--key", key)
        await self._run("ledger", "bundle", log.origin, *chosen, expect=VERIFIED)
        self.say(f"   the same with who asked for it, disclosed for this entry alone: {file.stat().st_size:,} bytes")
        self.say("   $ lakeproof ledger check refusal.evidence --key …")
        self._show(await self._offline("ledger", "check", str(file), "--key", key, expect=VERIFIED))
        await run_verifier(str(file), "--key", key, expect=VERIFIED)
        self.say("   verify_lakeproof.py says the same")

    async def _checkpointed(self, log: Log) -> None:
        """Wait until a signed checkpoint covers all that is in the log now."""
        services = self.serving.services
        role = services.installation.roles.auditor
        async with services.gateway.database.as_role(role) as connection:
            size = (await read_head(connection, log.log_id)).size

        async def signed() -> int:
            async with services.gateway.database.as_role(role) as connection:
                return await latest_checkpoint_size(connection, log.log_id)

        async def poll() -> bool | None:
            return True if await signed() >= size else None

        async def expected() -> str:
            return f"expected a checkpoint of {size} entries of {log.origin}, found one of {await signed()}"

        await until(poll, signed, expected=expected)

    async def _offline(self, *arguments: str, expect: int) -> Ran:
        """Run a command that can reach no database and no home."""
        nowhere = {"LAKEPROOF_HOME": os.devnull, "LAKEPROOF_DSN": "host=/nonexistent dbname=nowhere"}
        return await self._run(*arguments, expect=expect, environment=nowhere)

    async def _run(self, *arguments: str, expect: int, environment: Mapping[str, str] | None = None) -> Ran:
        """Run a command as whoever has the home; it must end with exit code `expect`."""
        home = self.serving.services.installation.settings.home
        return await run_command(home, *arguments, expect=expect, environment=environment)

    def _show(self, ran: Ran) -> None:
        for line in ran.output.strip().splitlines():
            self.say(f"     {line}")
