# SPDX-License-Identifier: Apache-2.0
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from urllib.parse import unquote

import pytest

from lakeproof.errors import AgeError
from lakeproof.postgres.age import PACKAGE, check_age, fetch_age
from lakeproof.postgres.apt_sources import read_sources
from lakeproof.postgres.elf import relax_glibc
from testkit.environment import missing
from testkit.lakeproof.apt_machine import AptMachine, Signer, new_signer

ShortDirectory = Callable[[], AbstractContextManager[Path]]


@pytest.fixture
def copy(age: Path, tmp_path: Path) -> Path:
    """A copy of the unpacked AGE that a test may damage."""
    return Path(shutil.copytree(age, tmp_path / "copy"))


@pytest.fixture
def package(age: Path) -> Path:
    """Debian's package, as it was fetched."""
    return next(age.glob(f"{PACKAGE}_*.deb"))


@pytest.fixture
def library(package: Path, tmp_path: Path) -> bytes:
    """The library as Debian built it."""
    subprocess.run(["dpkg-deb", "-x", package, tmp_path / "x"], check=True)
    return next((tmp_path / "x").rglob("age.so")).read_bytes()


def apt_that(does: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a simulator of apt-get first in the path: a script that is given apt-get's arguments."""
    folder.mkdir()
    (folder / "apt-get").write_text(f"#!/bin/sh\n{does}\n")
    (folder / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.fixture(scope="module")
def signers(short_directory: ShortDirectory) -> Iterator[tuple[Signer, Signer]]:
    """Two keys: one that a machine trusts, and one that it does not know."""
    if shutil.which("gpg") is None:
        missing("gpg is not here, with which repositories are signed")
    with short_directory() as folder, new_signer(folder / "a") as ours, new_signer(folder / "b") as stranger:
        yield ours, stranger


@pytest.fixture
def machine(
    package: Path, signers: tuple[Signer, Signer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AptMachine:
    """A machine whose apt trusts one key, and a repository with AGE that nobody has signed yet."""
    machine = AptMachine(folder=tmp_path / "machine")
    machine.make()
    signers[0].export(machine.keyring)
    machine.publish(package)
    monkeypatch.setenv("APT_CONFIG", str(machine.config))
    return machine


def refusal(directory: Path) -> str:
    with pytest.raises(AgeError) as caught:
        check_age(directory)
    return str(caught.value)


def test_an_untouched_copy_is_accepted(copy: Path) -> None:
    check_age(copy)


def test_a_changed_byte_of_any_file_is_refused_by_the_files_name(copy: Path) -> None:
    for name in json.loads((copy / "age.json").read_bytes())["files"]:
        content = bytearray((copy / name).read_bytes())
        content[len(content) // 2] ^= 1
        (copy / name).write_bytes(content)
        assert refusal(copy) == (
            f"{copy / name} is not the file that was unpacked there: delete {copy} and start again"
        )
        content[len(content) // 2] ^= 1
        (copy / name).write_bytes(content)
    check_age(copy)


def test_a_missing_and_an_added_file_are_refused_by_name(copy: Path) -> None:
    (copy / "lib" / "evil.so").touch()
    assert str(copy / "lib" / "evil.so") in refusal(copy)
    (copy / "lib" / "evil.so").unlink()
    (copy / "lib" / "age.so").unlink()
    assert str(copy / "lib" / "age.so") in refusal(copy)


@pytest.mark.parametrize(
    "record", [b"", b"\xff", b"[]", b"{}", b'{"files": 1}', b'{"files": null}', b'{"files": ["a"]}']
)
def test_a_record_that_cannot_be_read_is_refused(record: bytes, copy: Path) -> None:
    (copy / "age.json").write_bytes(record)
    assert "age.json" in refusal(copy)


def test_a_fetch_with_a_changed_cache_is_refused_and_nothing_is_fetched(
    age: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = Path(shutil.copytree(age, tmp_path / "cache" / age.name))
    (cached / "lib" / "age.so").write_bytes(b"something else")
    apt_that("exit 1", tmp_path / "bin", monkeypatch)
    with pytest.raises(AgeError, match=r"age\.so is not the file that was unpacked there"):
        fetch_age(tmp_path / "cache", print)


SOURCES = (
    "deb {uri} own main\n",
    "deb [trusted=yes] {uri} own main\n",
    "# a comment\ndeb   [ arch+=i386 signed-by={keyring} trusted=yes allow-insecure=yes ]   {uri} own main # another\n",
    "Types: deb\nURIs: {uri}\nSuites: own\nComponents: main\nTrusted: yes\nAllow-Insecure: yes\n",
    "types: deb\n# a comment\nuris:\n {uri}\nsuites: own\ncomponents: main\nsigned-by: {keyring}\ntrusted: yes\n",
)
TRUSTED = tuple(source for source in SOURCES if "yes" in source)
"""Those that tell apt to trust whatever they have."""
FAULTS = ("nobody", "a stranger", "then changed", "another package")
LAX_SETTINGS = (
    'APT::Get::AllowUnauthenticated "true";\nAcquire::AllowInsecureRepositories "true";\n'
    'Acquire::AllowWeakRepositories "true";\nAcquire::AllowDowngradeToInsecureRepositories "true";\n'
)


def add(machine: AptMachine, source: str) -> None:
    machine.add(source, name="own.sources" if "{uri}\n" in source else "own.list")


@pytest.mark.parametrize("source", SOURCES)
def test_a_package_of_a_source_with_a_valid_signature_is_unpacked_to_the_same_files(
    source: str, age: Path, machine: AptMachine, signers: tuple[Signer, Signer], tmp_path: Path
) -> None:
    signers[0].sign(machine.release)
    add(machine, source)
    machine.update()
    said: list[str] = []
    fetched = fetch_age(tmp_path / "cache", said.append)
    record, expected = (json.loads((folder / "age.json").read_bytes()) for folder in (fetched, age))
    assert unquote(record["source"]) == f"file:{machine.repository}/pool/{record['package']}"
    assert {**record, "source": ""} == {**expected, "source": ""}
    assert (fetched / "lib" / "age.so").read_bytes() == (age / "lib" / "age.so").read_bytes()
    assert (fetched / "doc" / "copyright").exists()
    assert any("without a signature here" in line for line in said) == ("yes" in source)


# Every fault, each below another source.
@pytest.mark.parametrize(("source", "fault"), list(zip(TRUSTED, FAULTS, strict=True)))
def test_a_package_without_a_valid_signature_is_refused_though_the_machine_trusts_its_source(
    source: str, fault: str, machine: AptMachine, signers: tuple[Signer, Signer], tmp_path: Path
) -> None:
    ours, stranger = signers
    if fault == "a stranger":
        stranger.sign(machine.release)
    elif fault != "nobody":
        ours.sign(machine.release)
    if fault == "then changed":
        signed = (machine.release / "InRelease").read_text()
        (machine.release / "InRelease").write_text(signed.replace("12:00:00", "12:00:01"))
    machine.config.write_text(machine.config.read_text() + LAX_SETTINGS)
    add(machine, source)
    machine.update()
    if fault == "another package":
        (file,) = (machine.repository / "pool").iterdir()
        file.write_bytes(file.read_bytes()[:-1] + b"x")
    said: list[str] = []
    with pytest.raises(AgeError, match=r"could not be fetched with a valid signature .*LAKEPROOF_DSN"):
        fetch_age(tmp_path / "cache", said.append)
    assert any("without a signature here; this one needs a valid one" in line for line in said)
    assert not list((tmp_path / "cache").glob("*/age.json"))


def test_a_keyring_that_others_can_change_signs_nothing(
    machine: AptMachine, signers: tuple[Signer, Signer], tmp_path: Path
) -> None:
    signers[0].sign(machine.release)
    machine.add("deb [signed-by={keyring}] {uri} own main\n")
    machine.update()
    machine.keyring.chmod(0o666)
    with pytest.raises(AgeError, match=r"own\.gpg .* can be changed by others: run chmod go-w"):
        fetch_age(tmp_path / "cache", print)
    machine.keyring.chmod(0o644)
    fetch_age(tmp_path / "cache", print)


def test_a_copy_that_names_no_source_is_fetched_again(
    age: Path, machine: AptMachine, signers: tuple[Signer, Signer], tmp_path: Path
) -> None:
    signers[0].sign(machine.release)
    machine.add("deb {uri} own main\n")
    machine.update()
    cached = Path(shutil.copytree(age, tmp_path / "cache" / age.name))
    record = json.loads((cached / "age.json").read_bytes())
    del record["source"]
    (cached / "age.json").write_text(json.dumps(record))
    (cached / "lib" / "planted.so").touch()
    fetched = fetch_age(tmp_path / "cache", print)
    assert json.loads((fetched / "age.json").read_bytes())["source"].startswith("file:")
    assert not (fetched / "lib" / "planted.so").exists()


def test_sources_are_read_without_what_weakens_them(tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    parts.mkdir()
    main = tmp_path / "sources.list"
    main.write_text(
        "deb-src http://a.example x main\n#deb http://b.example x main\n"
        "deb [trusted=no] http://c.example/ x main contrib\ndeb cdrom: x\nnonsense\ndeb http://d.example\n"
    )
    (parts / "off.sources").write_text("Types: deb\nURIs: http://e.example\nSuites: x\nEnabled: no\n")
    (parts / "more.sources").write_text(
        "Types: deb deb-src\nURIs: http://f.example http://g.example\nSuites: x y\nComponents: main\n"
        "Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n key\n\n\n"
        "Types: deb\nURIs: file:/h\nSuites: ./\nTrusted: yes\n"
    )
    (parts / "ignored.txt").write_text("deb http://i.example x main\n")
    read = {source.uris: source for source in read_sources(main, parts)}
    assert list(read) == [("http://c.example/",), ("cdrom:",), ("http://f.example", "http://g.example"), ("file:/h",)]
    assert [source.is_lax for source in read.values()] == [False, False, False, True]
    assert read["file:/h",].stanza() == "Types: deb\nURIs: file:/h\nSuites: ./\n"
    assert read["http://c.example/",].stanza().endswith("Suites: x\nComponents: main contrib\n")
    more = read["http://f.example", "http://g.example"].stanza()
    assert more.endswith("Components: main\nSigned-By: \n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n key\n")


def test_an_interrupted_fetch_is_begun_again(
    machine: AptMachine, signers: tuple[Signer, Signer], tmp_path: Path
) -> None:
    signers[0].sign(machine.release)
    machine.add("deb {uri} own main\n")
    machine.update()
    leftover = tmp_path / "cache" / f"age-18-{platform.machine()}"
    for folder in (leftover, leftover.with_suffix(".new"), leftover.with_suffix(".former")):
        (folder / "lib").mkdir(parents=True)
        (folder / "lib" / "half.so").touch()
    assert not (fetch_age(tmp_path / "cache", print) / "lib" / "half.so").exists()


def test_a_machine_that_cannot_fetch_is_told_why_and_to_use_a_server_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apt_that("echo 'E: no network' >&2; exit 100", tmp_path / "bin", monkeypatch)
    with pytest.raises(AgeError, match=r"E: no network.*LAKEPROOF_DSN") as caught:
        fetch_age(tmp_path / "cache", print)
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "cache").glob("*/age.json"))


def test_a_machine_without_apt_is_told_to_use_a_server_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AgeError, match="LAKEPROOF_DSN"):
        fetch_age(tmp_path / "cache", print)


def test_a_cache_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file is in the way")
    with pytest.raises(AgeError, match="LAKEPROOF_CACHE"):
        fetch_age(tmp_path / "cache", print)


def test_aliases_of_a_newer_c_library_are_bound_to_the_plain_functions_and_nothing_moves(library: bytes) -> None:
    relaxed, names = relax_glibc(library, have=(2, 36))
    assert len(relaxed) == len(library)
    assert all(name.startswith("__isoc23_") for name in names)
    assert relax_glibc(relaxed, have=(2, 36)) == (relaxed, [])


def test_a_library_that_asks_for_nothing_newer_comes_back_as_it_is(library: bytes) -> None:
    assert relax_glibc(library, have=(2, 99)) == (library, [])


def test_a_function_that_the_machine_lacks_is_refused_by_name(library: bytes) -> None:
    with pytest.raises(AgeError, match=r"AGE needs \w+ of glibc 2\.\d+(\.\d+)? but this machine has 2\.1"):
        relax_glibc(library, have=(2, 1))


def test_a_damaged_library_is_refused_and_never_anything_else(library: bytes) -> None:
    for size in (0, 3, 6, 40, 63, len(library) // 2, len(library) - 1):
        with pytest.raises(AgeError):
            relax_glibc(library[:size], have=(2, 36))
    for other in (b"\x7fELF\x01" + library[5:], b"MZ" + library[2:]):
        with pytest.raises(AgeError, match="expected a 64-bit little-endian ELF library"):
            relax_glibc(other, have=(2, 36))
