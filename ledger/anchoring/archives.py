# SPDX-License-Identifier: Apache-2.0
"""
The archives that users can name: a file, a git branch, a bucket.

A file that others collect: it holds the newest checkpoint and is replaced as a whole. A backup, an agent or a colleague
takes copies.

A git repository: one commit per checkpoint, on one branch, in a file named after the log. Its history is the evidence.
`git` itself does the work, in a temporary bare repository, so nothing is left behind, and a branch that others have
moved on is simply fetched. A push never rewrites: if the branch has moved meanwhile, the push is refused, and tried
again later. Whoever runs the repository forbids forced pushes to that branch. git's environment is bounded: only the
variables of `_KEPT`, no prompt, no protocols but local files, HTTPS and SSH, `GIT_TIMEOUT_S` per command. Credentials
are those of SSH, or of git's own credential helper.

A bucket of S3 under object lock is in `bucket_archive.py`.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final
from urllib.parse import urlsplit

from ledger.anchoring.archive import (
    ARCHIVE_FORMS,
    NOTE_SIZE_BYTES_MAX,
    NOTES_MAX,
    ArchivedNotes,
    ArchiveError,
    BucketAccess,
    CheckpointArchive,
    name_of,
)
from ledger.anchoring.bucket_archive import BucketArchive
from ledger.errors import BrokenError, Fault
from ledger.files.atomic import SHARED, Forced, own_temporary, replace_file
from ledger.files.regular_file import UnreadableError, opened, read_at_most

if TYPE_CHECKING:
    from collections.abc import Iterator

GIT_TIMEOUT_S: Final = 30.0
BRANCH: Final = "main"
OUTPUT_SIZE_BYTES_MAX: Final = 64 * 1024 * 1024
_KEPT: Final = (
    "PATH",
    "HOME",
    "XDG_CONFIG_HOME",
    "SSH_AUTH_SOCK",
    "HTTPS_PROXY",
    "https_proxy",
    "NO_PROXY",
    "no_proxy",
)
_SET: Final[Mapping[str, str]] = {
    "LC_ALL": "C",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "file:https:ssh",
    "GIT_SSH_COMMAND": "ssh -o BatchMode=yes -o ConnectTimeout=10",
    "GIT_AUTHOR_NAME": "Lakeproof",
    "GIT_AUTHOR_EMAIL": "lakeproof@localhost",
    "GIT_COMMITTER_NAME": "Lakeproof",
    "GIT_COMMITTER_EMAIL": "lakeproof@localhost",
}
_BRANCH: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,99}")
_SCP: Final = re.compile(r"(?:[A-Za-z0-9._-]+@)?[A-Za-z0-9._-]+:[^:].*")
"""As in git@github.com:acme/checkpoints.git."""
_ADDED: Final = re.compile(rb":[0-7]{6} 100644 [0-9a-f]+ ([0-9a-f]{40,64}) [AM]\t")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileArchive:
    """A file of one note (implements `CheckpointArchive`)."""

    path: Path

    @property
    def where(self) -> str:
        """The archive as users name it."""
        return f"file:{self.path}"

    def add(self, origin: str, *, size: int, note: bytes) -> None:  # noqa: ARG002 - the note says both
        """
        Replace the file by one with `note`; a reader finds either the old or the new one, whole.

        Raises:
            ArchiveError: if it cannot be written.
        """
        try:
            # Its name is not forced: some network file systems refuse that, and the next round would add it again.
            replace_file(self.path, note, mode=SHARED, forced=Forced.CONTENTS, temporary=own_temporary(self.path))
        except OSError as error:
            raise ArchiveError(f"{self.where} cannot be written ({error.strerror}): check its folder") from error

    def read(self, origin: str, *, notes_max: int = NOTES_MAX) -> ArchivedNotes:  # noqa: ARG002 - there is one, of one log
        """
        Return the note in the file, or none if there is no file.

        Raises:
            ArchiveError: if it cannot be read, or is too large to be a note.
        """
        if not self.path.exists():
            return ArchivedNotes(where=self.where, notes=())
        try:
            with opened(self.path.parent, self.path.name, Fault.CHECKPOINT, first=None) as file:
                note = read_at_most(file, NOTE_SIZE_BYTES_MAX + 1)
        except (BrokenError, UnreadableError, OSError) as error:
            raise ArchiveError(f"{self.where} cannot be read: {error}") from error
        if len(note) > NOTE_SIZE_BYTES_MAX:
            raise ArchiveError(
                f"{self.where}: expected a note of at most {NOTE_SIZE_BYTES_MAX} bytes, found a larger file"
            )
        return ArchivedNotes(where=self.where, notes=(note,))


@dataclass(frozen=True, slots=True, kw_only=True)
class GitArchive:
    """A branch of a repository (implements `CheckpointArchive`)."""

    repository: str
    branch: str = BRANCH

    @classmethod
    def parse(cls, text: str) -> GitArchive:
        """
        Return the archive that `git:<path or URL>[#branch]` names.

        Raises:
            ArchiveError: if it names none, or has a relative path, an unauthenticated protocol or a password.
        """
        repository, _, branch = text.removeprefix("git:").partition("#")
        url = urlsplit(repository) if "://" in repository else None
        if url is not None and url.password is not None:
            raise ArchiveError("git: expected a URL without a password: use SSH, or git's credential helper")
        is_remote = url is not None and url.scheme in {"https", "ssh", "file"}
        if not (is_remote or (url is None and (repository.startswith("/") or _SCP.fullmatch(repository)))):
            raise ArchiveError(f"expected {ARCHIVE_FORMS}, with an absolute path, https or ssh, found {text[:100]!r}")
        if repository.startswith("-") or (branch and (not _BRANCH.fullmatch(branch) or ".." in branch)):
            raise ArchiveError(f"expected the name of a branch behind #, found {branch[:100]!r}")
        return cls(repository=repository, branch=branch or BRANCH)

    @property
    def where(self) -> str:
        """The archive as users name it."""
        return f"git:{self.repository}" + ("" if self.branch == BRANCH else f"#{self.branch}")

    def add(self, origin: str, *, size: int, note: bytes) -> None:
        """
        Commit `note` on the branch, and push it.

        Raises:
            ArchiveError: if the repository cannot be reached, or takes no push now.
        """
        with self._bare() as git:
            tip = self._fetch(git, depth=1)
            blob = _id(git.run("hash-object", "-w", "--stdin", given=note))
            if tip is not None:
                git.run("read-tree", tip)
            git.run("update-index", "--add", "--cacheinfo", f"100644,{blob},{name_of(origin)}")
            tree = _id(git.run("write-tree"))
            if tip is not None and tree == _id(git.run("rev-parse", f"{tip}^{{tree}}")):
                return
            parent = () if tip is None else ("-p", tip)
            message = f"Checkpoint of {origin} at {size} entries"
            commit = _id(git.run("commit-tree", tree, *parent, "-m", message))
            git.run("push", "--quiet", "--no-verify", "--", self.repository, f"{commit}:refs/heads/{self.branch}")

    def read(self, origin: str, *, notes_max: int = NOTES_MAX) -> ArchivedNotes:
        """
        Return every note that the history of the branch has held, newest first.

        Raises:
            ArchiveError: if the repository cannot be reached, or the file was ever too large for a note.
        """
        with self._bare() as git:
            tip = self._fetch(git, depth=None)
            if tip is None:
                return ArchivedNotes(where=self.where, notes=())
            listed = git.run(
                *("log", "--format=", "--raw", "--no-abbrev", "--no-renames", "--full-history", "-m"),
                *(f"--max-count={notes_max + 1}", tip, "--", name_of(origin)),
            )
            blobs = list(
                dict.fromkeys(found[1].decode() for line in listed.splitlines() if (found := _ADDED.match(line)))
            )
            notes = tuple(self._blobs(git, blobs[:notes_max]))
        return ArchivedNotes(where=self.where, notes=notes, is_whole=len(blobs) <= notes_max)

    def _blobs(self, git: _Git, ids: Sequence[str]) -> Iterator[bytes]:
        given = "".join(f"{blob}\n" for blob in ids).encode()
        sizes = git.run("cat-file", "--batch-check=%(objectsize)", given=given).split()
        if any(int(size) > NOTE_SIZE_BYTES_MAX for size in sizes):
            found = f"a file of {max(map(int, sizes))}"
            raise ArchiveError(f"{self.where}: expected notes of at most {NOTE_SIZE_BYTES_MAX} bytes, found {found}")
        rest = git.run("cat-file", "--batch=", given=given)
        for size in map(int, sizes):  # an empty line, the content, a line feed
            yield rest[1 : 1 + size]
            rest = rest[size + 2 :]

    def _fetch(self, git: _Git, *, depth: int | None) -> str | None:
        """Fetch the branch and return its newest commit, None if there is no such branch yet."""
        ref = f"refs/heads/{self.branch}"
        if not git.run("ls-remote", "--", self.repository, ref):
            return None
        shallow = () if depth is None else (f"--depth={depth}",)
        git.run("fetch", "--quiet", "--no-tags", *shallow, "--", self.repository, ref)
        return _id(git.run("rev-parse", "FETCH_HEAD"))

    @contextmanager
    def _bare(self) -> Iterator[_Git]:
        with tempfile.TemporaryDirectory(prefix="lakeproof-git-") as folder:
            git = _Git(folder=Path(folder), where=self.where)
            git.run("init", "--quiet", "--bare", folder)
            yield git


@dataclass(frozen=True, slots=True, kw_only=True)
class _Git:
    """The command, in a bare repository."""

    folder: Path
    where: str

    def run(self, *arguments: str, given: bytes = b"") -> bytes:
        """Run a command; return what it prints. Raises ArchiveError if it fails, prints too much or takes too long."""
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            stdin.write(given)
            stdin.seek(0)
            try:
                process = subprocess.Popen(  # noqa: S603 - no shell, and every argument is ours or was checked
                    ["git", "--git-dir", str(self.folder), *arguments],  # noqa: S607 - the operator's git
                    env={**environment, **_SET},
                    cwd=self.folder,
                    stdin=stdin,
                    stdout=stdout,
                    stderr=stderr,
                    start_new_session=True,  # so that what git starts (ssh) ends with it
                )
            except OSError as error:
                raise ArchiveError(f"{self.where}: git cannot be run ({error.strerror}): install it") from error
            try:
                code = process.wait(GIT_TIMEOUT_S)
            except subprocess.TimeoutExpired as error:
                raise ArchiveError(f"{self.where}: git {arguments[0]} took over {GIT_TIMEOUT_S:g} s") from error
            finally:
                if process.poll() is None:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            printed = _read(stdout)
            if code:
                said = " ".join(_read(stderr)[-1_000:].decode(errors="replace").split())
                raise ArchiveError(f"{self.where}: git {arguments[0]} failed: {said[:300] or f'exit code {code}'}")
            if len(printed) > OUTPUT_SIZE_BYTES_MAX:
                raise ArchiveError(f"{self.where}: git {arguments[0]} printed over {OUTPUT_SIZE_BYTES_MAX} bytes")
            return printed


def _read(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read(OUTPUT_SIZE_BYTES_MAX + 1)


def _id(printed: bytes) -> str:
    return printed.decode(errors="replace").strip()


def is_archive(text: str) -> bool:
    """
    Return whether `text` names an archive, rather than a file by its path alone.
    """
    return text.startswith(("file:", "git:", "s3:"))


def parse_archive(text: str, access: BucketAccess) -> CheckpointArchive:
    """
    Return the archive that `text` names: one of `ARCHIVE_FORMS`.

    Raises:
        ArchiveError: if it names none. The archive is not contacted.
    """
    scheme, _, rest = text.partition(":")
    if not text.isprintable() or len(text) > 2_000:
        raise ArchiveError(f"expected {ARCHIVE_FORMS}, found {_shown(text)}")
    if scheme == "file" and rest.startswith("/"):
        return FileArchive(path=Path(f"/{rest.lstrip('/')}"))
    if scheme == "git" and rest:
        return GitArchive.parse(text)
    if scheme == "s3" and rest.startswith("//"):
        named = urlsplit(text)
        if named.netloc and not (named.query or named.fragment or "@" in named.netloc):
            return BucketArchive(bucket=named.netloc, prefix=named.path.strip("/"), access=access)
    raise ArchiveError(f"expected {ARCHIVE_FORMS}, found {_shown(text)}")


def _shown(text: str) -> str:
    """Return the beginning of `text`, without a password."""
    return repr(re.sub(r"//[^/]*@", "//…@", text[:100]))


def read_archives(archives: Iterable[CheckpointArchive], origin: str) -> list[ArchivedNotes]:
    """
    Return what archives have of the log `origin`. Raises ArchiveError if one cannot be read.
    """
    return [archive.read(origin) for archive in archives]
