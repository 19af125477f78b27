import json
import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from lakeproof.age import PACKAGE, check_age, fetch_age
from lakeproof.elf import relax_glibc
from lakeproof.errors import AgeError


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


def test_a_package_that_apt_gives_is_unpacked_to_the_same_files(
    age: Path, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apt_that(f"cp '{package}' .", tmp_path / "bin", monkeypatch)
    said: list[str] = []
    fetched = fetch_age(tmp_path / "cache", said.append)
    assert json.loads((fetched / "age.json").read_bytes()) == json.loads((age / "age.json").read_bytes())
    assert (fetched / "lib" / "age.so").read_bytes() == (age / "lib" / "age.so").read_bytes()
    assert (fetched / "doc" / "copyright").exists()
    assert len(said) == 2


def test_an_interrupted_fetch_is_begun_again(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apt_that(f"cp '{package}' .", tmp_path / "bin", monkeypatch)
    leftover = tmp_path / "cache" / f"age-18-{platform.machine()}"
    for folder in (leftover, leftover.with_suffix(".new")):
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
