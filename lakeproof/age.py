"""
Apache AGE for the embedded server: Debian's signed package, unpacked into a cache directory of ours, never installed.

The one guarantee: the directory that `fetch_age` returns holds exactly what was unpacked from a package whose
signature apt has checked. `age.json` records the SHA-256 of every file, the package among them; it is written last, so
that its presence means complete, and everything is hashed again at each start (two milliseconds).

apt runs with a configuration of its own: the system's transport (proxy, certificates) is used, its sources, its state
and its hooks are not touched, and no rights are needed. Where there is no apt: LAKEPROOF_DSN.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from lakeproof.elf import Version, relax_glibc
from lakeproof.errors import AgeError
from lakeproof.file_lock import exclusive

PG_MAJOR = 18
PACKAGE = f"postgresql-{PG_MAJOR}-age"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SUITES = ("testing", "sid")  # of Debian, where the machine's own sources do not have the package
APT_TIMEOUT_S = 300
LOCK_TIMEOUT_S = 600
INSTEAD = "set LAKEPROOF_DSN to a PostgreSQL 17 or newer that has Apache AGE"

Say = Callable[[str], None]


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
            if not (target / "age.json").exists():
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
        recorded = dict(json.loads((directory / "age.json").read_bytes())["files"])
        found = _digests(directory)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AgeError(f"the record age.json in {directory} cannot be read ({error}): {remedy}") from error
    if recorded != found:
        names = sorted(set(recorded) ^ set(found)) or sorted(name for name in found if recorded[name] != found[name])
        raise AgeError(f"{directory / names[0]} is not the file that was unpacked there: {remedy}")


def _digests(directory: Path) -> dict[str, str]:
    files = (path for path in sorted(directory.rglob("*")) if path.is_file() and path.name != "age.json")
    return {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _fetch(target: Path, say: Say) -> None:
    say(f"fetching Apache AGE (Debian's signed package {PACKAGE}) into {target}")
    with tempfile.TemporaryDirectory(prefix="lakeproof-age-") as name:
        work = Path(name)
        work.chmod(0o755)  # apt, when run as root, downloads as a user of its own
        package = _download(work, say)
        unpacked = work / "unpacked"
        _run(["dpkg-deb", "-x", str(package), str(unpacked)])
        fresh = target.with_suffix(".new")
        for leftover in (fresh, target):
            shutil.rmtree(leftover, ignore_errors=True)
        relaxed = _place(unpacked, fresh)
        shutil.copy(package, fresh / package.name)
        record = {"package": package.name, "relaxed": relaxed, "files": _digests(fresh)}
        with (fresh / "age.json").open("w") as file:
            json.dump(record, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(target)
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


def _download(work: Path, say: Say) -> Path:
    """Try the machine's own sources (Debian 14, PGDG, a newer Ubuntu), then Debian's newer suites, signatures on."""
    refusals: list[str] = []
    for suite in (None, *SUITES):
        try:
            options: list[str] = []
            if suite:
                say(f"looking in Debian {suite}")
                options = ["-c", str(_private_apt(work / suite, suite))]
                _run(["apt-get", "-q", *options, "update"])
            _run(["apt-get", "-q", *options, "download", PACKAGE], cwd=work)
            return next(work.glob(f"{PACKAGE}_*.deb"))
        except AgeError as error:
            refusals.append(f"{suite or 'own sources'}: {error}")
    raise AgeError(
        f"{PACKAGE} could not be fetched ({'; '.join(refusals)}): allow access to a Debian mirror, or {INSTEAD}"
    )


def _private_apt(root: Path, suite: str) -> Path:
    """Write apt's settings of our own: sources, lists, state and hooks are ours, the transport stays the system's."""
    for sub in ("sources", "lists/partial", "cache/archives/partial", "state"):
        (root / sub).mkdir(parents=True, exist_ok=True)
    (root / "state/status").touch()
    (root / "sources/age.sources").write_text(
        f"Types: deb\nURIs: {_debian_mirror()}\nSuites: {suite}\nComponents: main\nSigned-By: {KEYRING}\n"
    )
    (root / "apt.conf").write_text(f"""
#clear APT::Update;
#clear APT::Default-Release;
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
APT::Get::AllowUnauthenticated "false";
APT::Update::Error-Mode "any";
""")
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
            command, cwd=cwd, env=environment, text=True, capture_output=True, timeout=APT_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AgeError(f"{command[0]}: {error}") from error
    if done.returncode:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise AgeError(f"{command[0]} said {' '.join(lines[:3])[:300]!r}")
    return done.stdout
