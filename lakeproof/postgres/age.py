# SPDX-License-Identifier: Apache-2.0
"""
Apache AGE for the embedded server: Debian's signed package, unpacked into a cache directory of ours, never installed.

Guarantee: the directory that `fetch_age` returns holds exactly what was unpacked from a package with a valid signature,
even where the machine's own settings would do without one. `age.json` records its source, and the
SHA-256 of every file, the package among them; it is written last, so if it is there, the copy is
complete. Everything is hashed again at each start (two milliseconds).

apt runs with a configuration of our own: it uses the system's transport (proxy, certificates), leaves its sources,
state and hooks alone, and needs no rights. Where there is no apt: LAKEPROOF_DSN.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from lakeproof.errors import AgeError
from lakeproof.messages import Say
from lakeproof.postgres.apt_sources import read_sources
from lakeproof.postgres.elf import Version, relax_glibc
from lakeproof.postgres.file_lock import exclusive
from ledger.errors import FormatError
from ledger.files.atomic import SHARED, replace_file
from ledger.format.json_object import parse_object

PG_MAJOR = 18
PACKAGE = f"postgresql-{PG_MAJOR}-age"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SUITES = ("testing", "sid")  # of Debian, where the machine's own sources do not have the package
APT_TIMEOUT_S = 300
RECORD_BYTES_MAX = 1024 * 1024  # of age.json, which names some fifty files
LOCK_TIMEOUT_S = 600
INSTEAD = "set LAKEPROOF_DSN to a PostgreSQL 17 or newer that has Apache AGE"


def fetch_age(cache: Path, say: Say) -> Path:
    """
    Return the directory of AGE below `cache` (`lib/age.so`, `share/extension/…`, `doc/`), fetching it the first time.

    Raises:
        AgeError: if there is no package for this machine, it cannot be fetched, or the cached copy was changed.
    """
    if platform.system() != "Linux" or not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise AgeError(
            f"the embedded server fetches Apache AGE with apt on Debian or Ubuntu, which is not here: {INSTEAD}"
        )
    target = cache.absolute() / f"age-{PG_MAJOR}-{platform.machine()}"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with exclusive(target.with_suffix(".lock"), timeout_s=LOCK_TIMEOUT_S):
            if not _is_of_a_checked_source(target):
                _fetch(target, say)
    except OSError as error:
        raise AgeError(
            f"Apache AGE cannot be kept in {cache} ({error}): repair that, or set LAKEPROOF_CACHE"
        ) from error
    check_age(target)
    return target


def check_age(directory: Path) -> None:
    """
    Check that `directory` holds exactly the files that were recorded when AGE was unpacked there.

    Raises:
        AgeError: if a file is missing, was added or has other bytes than recorded, or the record cannot be read.
    """
    remedy = f"delete {directory} and start again"
    try:
        recorded = dict(_read_record(directory)["files"])
        found = _digests(directory)
    except (OSError, FormatError, ValueError, KeyError, TypeError) as error:
        raise AgeError(f"the record age.json in {directory} cannot be read ({error}): {remedy}") from error
    if recorded != found:
        names = sorted(set(recorded) ^ set(found)) or sorted(name for name in found if recorded[name] != found[name])
        raise AgeError(f"{directory / names[0]} is not the file that was unpacked there: {remedy}")


def _is_of_a_checked_source(target: Path) -> bool:
    """
    Return whether a copy is there whose record names its source.

    Earlier versions named none, and took what the machine's own sources gave without a signature.
    """
    try:
        return bool(_read_record(target)["source"])
    except (FileNotFoundError, KeyError):
        return False
    except FormatError:
        return True  # damaged: `check_age` refuses it


def _read_record(directory: Path) -> dict[str, Any]:
    with (directory / "age.json").open("rb") as file:
        data = file.read(RECORD_BYTES_MAX + 1)
    return parse_object(data, what="age.json", size_bytes_max=RECORD_BYTES_MAX)


def _digests(directory: Path) -> dict[str, str]:
    files = (path for path in sorted(directory.rglob("*")) if path.is_file() and path.name != "age.json")
    return {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _fetch(target: Path, say: Say) -> None:
    say(f"fetching Apache AGE (Debian's signed package {PACKAGE}) into {target}")
    with tempfile.TemporaryDirectory(prefix="lakeproof-age-") as name:
        work = Path(name)
        work.chmod(0o755)  # apt, when run as root, downloads as a user of its own
        package, uri = _download(work, say)
        unpacked = work / "unpacked"
        _run(["dpkg-deb", "-x", str(package), str(unpacked)])
        fresh, former = target.with_suffix(".new"), target.with_suffix(".former")
        for leftover in (fresh, former):
            shutil.rmtree(leftover, ignore_errors=True)
        relaxed = _place(unpacked, fresh)
        shutil.copy(package, fresh / package.name)
        record = {"package": package.name, "source": uri, "relaxed": relaxed, "files": _digests(fresh)}
        replace_file(fresh / "age.json", json.dumps(record, indent=1).encode(), mode=SHARED)
        if target.exists():
            target.rename(former)  # out of the way at once: a server that runs may read it at any moment
        fresh.rename(target)
        shutil.rmtree(former, ignore_errors=True)
    say(f"unpacked {package.name}" + (f", bound {', '.join(relaxed)} to this machine's C library" if relaxed else ""))


def _place(unpacked: Path, fresh: Path) -> list[str]:
    shutil.copytree(unpacked / f"usr/share/postgresql/{PG_MAJOR}/extension", fresh / "share/extension")
    shutil.copytree(unpacked / f"usr/share/doc/{PACKAGE}", fresh / "doc")  # its licence goes where it goes
    (fresh / "lib").mkdir()
    library = (unpacked / f"usr/lib/postgresql/{PG_MAJOR}/lib/age.so").read_bytes()
    library, relaxed = relax_glibc(library, have=_glibc())
    (fresh / "lib/age.so").write_bytes(library)
    return relaxed


def _glibc() -> Version:
    name, version = platform.libc_ver()
    if name != "glibc":
        raise AgeError(
            f"the package of Apache AGE needs glibc and this machine has {name or 'another C library'}: {INSTEAD}"
        )
    return tuple(int(part) for part in version.split("."))


def _download(work: Path, say: Say) -> tuple[Path, str]:
    """
    Return the package, and the URI it came from.

    Those of the machine's own sources that have it come first (Debian 14, PGDG, a newer Ubuntu), then Debian's newer
    suites.
    """
    refusals: list[str] = []
    for suite in (None, *SUITES):
        try:
            stanzas = _own_sources(say) if suite is None else _debian(suite, say)
            options = ["-c", str(_private_apt(work / (suite or "own"), stanzas))]
            _run(["apt-get", "-q", *options, "update"])
            listed = _run(["apt-get", "-q", *options, "download", "--print-uris", PACKAGE], cwd=work)
            _run(["apt-get", "-q", *options, "download", PACKAGE], cwd=work)
            return _as_listed(next(work.glob(f"{PACKAGE}_*.deb")), listed)
        except AgeError as error:
            refusals.append(f"{suite or 'own sources'}: {error}")
    raise AgeError(
        f"{PACKAGE} could not be fetched with a valid signature ({'; '.join(refusals)}): allow access to a Debian "
        f"mirror, or {INSTEAD}"
    )


def _as_listed(package: Path, listed: str) -> tuple[Path, str]:
    """Return the package and its URI if it is what `listed` ('URI' name size SHA256:hash) says, as apt has seen to."""
    found = re.search(r"'(\S+)' \S+ (\d+) SHA256:([0-9a-f]{64})\b", listed)
    content = package.read_bytes()
    if found is None or (len(content), hashlib.sha256(content).hexdigest()) != (int(found[2]), found[3]):
        raise AgeError(f"{package.name} is not what the signed list of its source says")
    return package, found[1]


def _own_sources(say: Say) -> str:
    """
    Return the machine's own sources that have the package, as it knows them from its last update.

    That they have it is only a hint: their lists are fetched again, and checked.
    """
    rows = _run(["apt-cache", "madison", PACKAGE]).splitlines()
    places = {row.split("|")[2].split()[0].rstrip("/") for row in rows if row.count("|") > 1}
    files = _run(["apt-config", "shell", "MAIN", "Dir::Etc::sourcelist/f", "PARTS", "Dir::Etc::sourceparts/d"])
    named = {name: value for name, _, value in (word.partition("=") for word in shlex.split(files))}
    stanzas = []
    for source in read_sources(Path(named.get("MAIN", os.devnull)), Path(named.get("PARTS", os.devnull))):
        if any(uri.rstrip("/") in places for uri in source.uris):
            if source.is_lax:
                say(f"apt takes packages of {source.uris[0]} without a signature here; this one needs a valid one")
            stanzas.append(source.stanza())
    if not stanzas:
        raise AgeError("none of them has it")
    return "\n".join(stanzas)


def _debian(suite: str, say: Say) -> str:
    say(f"searching Debian {suite}")
    return f"Types: deb\nURIs: {_debian_mirror()}\nSuites: {suite}\nComponents: main\nSigned-By: {KEYRING}\n"


def _private_apt(root: Path, stanzas: str) -> Path:
    """
    Write apt's settings of our own, which are read last and win: sources, lists, state and hooks are ours.

    The transport stays the system's, and so do the keys that sources without `Signed-By` are checked with. Whatever
    would let apt do without a valid signature is off.
    """
    for sub in ("sources", "lists/partial", "cache/archives/partial", "state"):
        (root / sub).mkdir(parents=True, exist_ok=True)
    (root / "state/status").touch()
    (root / "sources/age.sources").write_text(stanzas)
    (root / "apt.conf").write_text(f"""
#clear APT::Update;
#clear APT::Default-Release;
#clear APT::Key;
#clear APT::Hashes;
#clear Acquire::gpgv;
#clear Acquire::IndexTargets::deb::DEP-11;
#clear Acquire::IndexTargets::deb::Contents-deb;
#clear Acquire::IndexTargets::deb::CNF;
Dir::Etc::SourceList "/dev/null";
Dir::Etc::SourceParts "{root}/sources";
Dir::Etc::PreferencesParts "/dev/null";
Dir::Etc::Preferences "/dev/null";
Dir::State "{root}/state";
Dir::State::Lists "{root}/lists";
Dir::State::Status "{root}/state/status";
Dir::Cache "{root}/cache";
Acquire::Languages "none";
Acquire::Retries "2";
Acquire::AllowInsecureRepositories "false";
Acquire::AllowWeakRepositories "false";
Acquire::AllowDowngradeToInsecureRepositories "false";
APT::Get::AllowUnauthenticated "false";
APT::Get::Force-Yes "false";
APT::Update::Error-Mode "any";
""")
    for path in (root, *root.rglob("*")):  # apt, when run as root, downloads as a user of its own, whatever our umask
        path.chmod(0o755 if path.is_dir() else 0o644)
    return root / "apt.conf"


def _debian_mirror() -> str:
    """Return the mirror from which this machine already takes its own Debian release."""
    release = platform.freedesktop_os_release()
    rows = _run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages"])
    for row in rows.splitlines():
        match row.split():
            case [uri, suite, "main"] if suite in (release.get("VERSION_CODENAME"), "stable", *SUITES):
                if release.get("ID") == "debian":
                    return uri
    raise AgeError("no Debian archive is among this machine's apt sources")


def _run(command: list[str], *, cwd: Path | None = None) -> str:
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(  # noqa: S603 - a fixed command line; nothing in it comes from outside
            command,
            cwd=cwd,
            env=environment,
            text=True,
            capture_output=True,
            timeout=APT_TIMEOUT_S,
            check=False,
            umask=0o022,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AgeError(f"{command[0]}: {error}") from error
    if done.returncode:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise AgeError(f"{command[0]} said {' '.join(lines[:3])[:300]!r}")
    return done.stdout
