# SPDX-License-Identifier: Apache-2.0
"""Places where checkpoints are kept outside: a file, a real git repository, a bucket of a server that speaks S3."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ledger.anchoring import archives
from ledger.anchoring.archive import NOTE_SIZE_BYTES_MAX, ArchivedNotes, ArchiveError, BucketAccess, CheckpointArchive
from ledger.anchoring.archives import FileArchive, GitArchive, is_archive, parse_archive
from ledger.anchoring.bucket_archive import BucketArchive
from testkit.ledger.logs import ORIGIN, SIGNER, rows_of, signed
from testkit.servers.cloud import fresh_cloud

ENTRIES = [row.entry for row in rows_of(9)]
NOTES = {size: signed(ENTRIES[:size], SIGNER) for size in (3, 6, 9)}
NOWHERE = BucketAccess()


def git(*arguments: object) -> str:
    done = subprocess.run(["git", *map(str, arguments)], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git("init", "--quiet", "--bare", tmp_path / "audit.git")
    return tmp_path / "audit.git"


def locked_bucket(endpoint: str, name: str, *, retention: bool = True) -> Any:
    """Make a bucket as its owner does for an auditor, and return a client of S3 for it."""
    s3 = fresh_cloud(endpoint).client("s3")
    region = {"LocationConstraint": s3.meta.region_name}
    s3.create_bucket(Bucket=name, CreateBucketConfiguration=region, ObjectLockEnabledForBucket=True)
    if retention:
        rule = {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": 400}}
        lock = {"ObjectLockEnabled": "Enabled", "Rule": rule}
        s3.put_object_lock_configuration(Bucket=name, ObjectLockConfiguration=lock)
    return s3


def access(endpoint: str) -> BucketAccess:
    return BucketAccess(endpoint=endpoint, region="eu-central-1", access_key_id="a", secret_access_key="b")


def filled(place: CheckpointArchive, *, origin: str = ORIGIN) -> ArchivedNotes:
    for size, note in NOTES.items():
        place.add(origin, size=size, note=note)
    return place.read(origin)


def test_a_file_holds_the_newest_checkpoint_whole(tmp_path: Path) -> None:
    place = parse_archive(f"file:{tmp_path}/checkpoint", NOWHERE)
    assert place.read(ORIGIN).notes == ()
    assert filled(place) == ArchivedNotes(where=f"file:{tmp_path}/checkpoint", notes=(NOTES[9],))
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_a_file_that_cannot_be_written_or_is_no_note_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="cannot be written"):
        FileArchive(path=tmp_path / "nowhere" / "checkpoint").add(ORIGIN, size=3, note=NOTES[3])
    with pytest.raises(ArchiveError, match="cannot be read"):
        FileArchive(path=tmp_path).read(ORIGIN)
    (tmp_path / "large").write_bytes(bytes(NOTE_SIZE_BYTES_MAX + 1))
    with pytest.raises(ArchiveError, match="larger"):
        FileArchive(path=tmp_path / "large").read(ORIGIN)


def test_a_repository_keeps_every_checkpoint_in_its_history(repository: Path) -> None:
    place = parse_archive(f"git:{repository}", NOWHERE)
    assert place.read(ORIGIN).notes == ()
    place.add("logs.example/other", size=1, note=b"another log's")
    assert filled(place).notes == (NOTES[9], NOTES[6], NOTES[3])
    assert git("-C", repository, "rev-list", "--count", "main") == "4"
    place.add(ORIGIN, size=9, note=NOTES[9])  # it is there: nothing new is told
    assert git("-C", repository, "rev-list", "--count", "main") == "4"
    assert place.read("logs.example/other").notes == (b"another log's",)
    newest = place.read(ORIGIN, notes_max=2)
    assert (newest.notes, newest.is_whole) == ((NOTES[9], NOTES[6]), False)


def test_a_repository_goes_on_from_what_others_have_pushed_and_is_never_rewritten(
    repository: Path, tmp_path: Path
) -> None:
    place = GitArchive.parse(f"git:{repository}#checkpoints")
    place.add(ORIGIN, size=3, note=NOTES[3])
    clone = tmp_path / "clone"
    git("clone", "--quiet", "--branch", "checkpoints", repository, clone)
    (clone / "README").write_text("what an auditor says\n")
    git("-C", clone, "add", "README")
    author = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    git("-C", clone, *author, "commit", "--quiet", "-m", "Say what this is")
    git("-C", clone, "push", "--quiet")
    place.add(ORIGIN, size=6, note=NOTES[6])
    assert place.read(ORIGIN).notes == (NOTES[6], NOTES[3])
    assert "README" in git("-C", repository, "ls-tree", "--name-only", "checkpoints")


def test_what_git_cannot_do_is_said_and_ends_in_time(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ArchiveError, match="git ls-remote failed"):
        GitArchive.parse(f"git:{tmp_path}/nowhere").read(ORIGIN)
    hook = repository / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\necho no more >&2\nexit 1\n")
    hook.chmod(0o755)
    with pytest.raises(ArchiveError, match=r"git push failed: .*no more"):
        GitArchive.parse(f"git:{repository}").add(ORIGIN, size=3, note=NOTES[3])
    # A git that hangs, with a child that holds its output open.
    (tmp_path / "git").write_text("#!/bin/sh\nsleep 600 & wait\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(archives, "GIT_TIMEOUT_S", 0.2)
    with pytest.raises(ArchiveError, match="took over"):
        GitArchive.parse(f"git:{repository}").read(ORIGIN)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(ArchiveError, match="git cannot be run"):
        GitArchive.parse(f"git:{repository}").read(ORIGIN)


def test_git_is_told_nothing_of_our_environment_but_what_it_needs(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "seen"
    (tmp_path / "git").write_text(f"#!/bin/sh\nenv > {seen}\nexit 1\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("LAKEPROOF_S3_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("GIT_DIR", "/elsewhere")
    with pytest.raises(ArchiveError):
        GitArchive.parse(f"git:{repository}").read(ORIGIN)
    told = seen.read_text()
    assert "GIT_TERMINAL_PROMPT=0" in told
    assert "secret" not in told
    assert "/elsewhere" not in told


def test_a_bucket_under_object_lock_keeps_every_version(moto: str) -> None:
    s3 = locked_bucket(moto, "kept")
    place = parse_archive("s3://kept/lakeproof/", access(moto))
    assert place.where == "s3://kept/lakeproof"
    assert place.read(ORIGIN).notes == ()
    assert set(filled(place).notes) == set(NOTES.values())
    place.add(ORIGIN, size=9, note=NOTES[9])  # it is there
    assert len(place.read(ORIGIN).notes) == 3
    # Whoever holds the key can write over an object, and hide it; what was there is read all the same.
    (key, *_) = sorted(item["Key"] for item in s3.list_objects_v2(Bucket="kept")["Contents"])
    forged = signed(ENTRIES[1:4], SIGNER)
    s3.put_object(Bucket="kept", Key=key, Body=forged)
    s3.delete_object(Bucket="kept", Key=key)
    assert set(place.read(ORIGIN).notes) == {*NOTES.values(), forged}
    version = s3.list_object_versions(Bucket="kept", Prefix=key)["Versions"][-1]["VersionId"]
    with pytest.raises(s3.exceptions.ClientError, match="AccessDenied"):
        s3.delete_object(Bucket="kept", Key=key, VersionId=version)
    newest = place.read(ORIGIN, notes_max=2)
    assert (len(newest.notes), newest.is_whole) == (2, False)


def test_a_bucket_that_could_be_emptied_or_is_not_there_is_refused(moto: str) -> None:
    cloud = fresh_cloud(moto)
    locked_bucket(moto, "no-retention", retention=False)
    for bucket in (cloud.bucket, "no-retention"):
        with pytest.raises(ArchiveError, match="no object lock with a default retention"):
            BucketArchive(bucket=bucket, access=access(moto)).add(ORIGIN, size=3, note=NOTES[3])
    with pytest.raises(ArchiveError, match="NoSuchBucket"):
        BucketArchive(bucket="nowhere", access=access(moto)).read(ORIGIN)
    unreachable = access("http://127.0.0.1:1")
    with pytest.raises(ArchiveError, match="Could not connect"):
        BucketArchive(bucket="kept", access=unreachable).read(ORIGIN)


def test_a_bucket_that_holds_another_checkpoint_of_that_size_is_refused(moto: str) -> None:
    locked_bucket(moto, "forked")
    place = BucketArchive(bucket="forked", access=access(moto))
    place.add(ORIGIN, size=3, note=NOTES[3])
    with pytest.raises(ArchiveError, match="expected the same checkpoint at size 3, found another"):
        place.add(ORIGIN, size=3, note=signed(ENTRIES[1:4], SIGNER))


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("file:/srv/checkpoint", "file:/srv/checkpoint"),
        ("file:///srv/checkpoint", "file:/srv/checkpoint"),
        ("git:/srv/audit.git", "git:/srv/audit.git"),
        ("git:git@git.example:acme/audit.git#main", "git:git@git.example:acme/audit.git"),
        ("git:ssh://git@git.example/audit.git#a/b", "git:ssh://git@git.example/audit.git#a/b"),
        ("git:https://git.example/audit.git", "git:https://git.example/audit.git"),
        ("s3://audit", "s3://audit"),
        ("s3://audit/a/b/", "s3://audit/a/b"),
    ],
)
def test_a_place_is_named_by_what_it_is(text: str, where: str) -> None:
    assert is_archive(text)
    assert parse_archive(text, NOWHERE).where == where


@pytest.mark.parametrize(
    "text",
    [
        *("", "file:", "file:checkpoint", "git:", "git:audit.git", "git:./audit.git", "git:--upload-pack=x", "ftp:"),
        *("s3:audit", "s3://", "s3://key:secret@audit", "s3://audit?x", "git:http://git.example/a", "file:/a\nb"),
        *(
            "git:ext::sh -c x",
            "git:/a#-x",
            "git:/a#a..b",
            "git:https://user:secret@git.example/a",
            "git:/" + "a" * 2_000,
        ),
    ],
)
def test_what_names_no_place_is_refused_without_a_secret(text: str) -> None:
    with pytest.raises(ArchiveError) as caught:
        parse_archive(text, NOWHERE)
    assert "secret" not in str(caught.value)
