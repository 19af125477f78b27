# SPDX-License-Identifier: Apache-2.0
"""The single-file verifier: its Ed25519, its agreement with ours on every tampering, and that it stands alone."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from ledger.errors import BrokenError, Fault, LedgerError
from ledger.files.directory import format_parts, parts_path
from ledger.format.checkpoint import Checkpoint, format_checkpoint
from ledger.format.cosignature import Cosigner
from ledger.format.entry import parse_entry
from ledger.format.merkle import root_of
from ledger.format.note import Ed25519Signer, Signature, format_note, parse_note, sign_note
from ledger.format.sequence import SequencedEntry
from ledger.format.signature import ED25519_COSIGNATURE
from ledger.verify.directory import verify_directory
from testkit.ledger.logs import KEY, ORIGIN, SIGNER, noise, plain_rows, rows_of, signed, write_directory
from testkit.ledger.standalone import MODULE, SCRIPT, run, standalone

SIZE = 600

# RFC 8032, section 7.1: public key, message, signature
VECTORS = [
    (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        (
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46b"
            "d25bf5f0595bbe24655141438e7a100b"
        ),
    ),
    (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        (
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c"
            "387b2eaeb4302aeeb00d291612bb0c00"
        ),
    ),
    (
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        (
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc659"
            "4a7c15e9716ed28dc027beceea1ec40a"
        ),
    ),
]


@pytest.fixture(scope="module")
def rows() -> list[SequencedEntry]:
    return rows_of(SIZE)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory, rows: list[SequencedEntry]) -> Path:
    return write_directory(tmp_path_factory.mktemp("clean"), rows, parts=True)


@pytest.fixture
def copy(clean: Path, tmp_path: Path) -> Path:
    return shutil.copytree(clean, tmp_path / "copy")


# It stands alone


def test_it_is_one_file_of_the_standard_library_without_lint_waivers() -> None:
    text = SCRIPT.read_text()
    assert "noqa" not in text
    assert "fmt: off" not in text
    tree = ast.parse(text, feature_version=(3, 9))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported <= sys.stdlib_module_names


def test_it_runs_without_anything_installed(clean: Path) -> None:
    for python in interpreters():
        arguments = [python, "-I", "-S", str(SCRIPT), str(clean), "--key", KEY.format()]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), python
        assert done.stdout.endswith("OK\n")


def interpreters() -> list[str]:
    """Return this interpreter, and those of other versions from 3.9 on that are here and start."""
    found = [sys.executable]
    for minor in range(9, 16):
        python = shutil.which(f"python3.{minor}")
        if python and subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0:
            found.append(python)
    return found


# Ed25519


def oracle(public: bytes, message: bytes, signature: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


@pytest.mark.parametrize(("public", "message", "signature"), VECTORS)
def test_the_vectors_of_rfc_8032_verify_and_no_changed_one_does(public: str, message: str, signature: str) -> None:
    key, text, signed = bytes.fromhex(public), bytes.fromhex(message), bytes.fromhex(signature)
    assert MODULE.verifies(key, text, signed)
    assert not MODULE.verifies(key, text + b"x", signed)
    for at in range(0, 64, 9):
        assert not MODULE.verifies(key, text, signed[:at] + bytes([signed[at] ^ 4]) + signed[at + 1 :])


def test_signatures_that_are_bad_in_known_ways_are_refused_as_openssl_refuses_them() -> None:
    private = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    public = private.public_key().public_bytes_raw()
    signed = private.sign(b"text")
    s = int.from_bytes(signed[32:], "little")
    least = bytes([1]) + bytes(31)  # the neutral element; and with a sign, another spelling of it
    for changed in (
        signed[:32] + (s + MODULE.L).to_bytes(32, "little"),  # S not below the order
        signed[:32] + bytes(32),
        signed[:32] + MODULE.L.to_bytes(32, "little"),
        bytes(64),
        bytes([255]) * 64,
        least + bytes(32),
        (MODULE.P + 1).to_bytes(32, "little") + bytes(32),  # R is y = 1, spelled as P + 1
        signed[:31] + bytes([signed[31] ^ 0x80]) + signed[32:],
        signed[:63],
        signed + b"\0",
        b"",
    ):
        assert not oracle(public, b"text", changed)
        assert not MODULE.verifies(public, b"text", changed)
    assert MODULE.verifies(public, b"text", signed)


def test_random_keys_and_signatures_are_judged_as_openssl_judges_them() -> None:
    random = Random(8032)  # noqa: S311 - the same in every run
    for _ in range(12):
        private = Ed25519PrivateKey.from_private_bytes(random.randbytes(32))
        public, message = private.public_key().public_bytes_raw(), random.randbytes(random.randrange(100))
        signed = bytearray(private.sign(message))
        if random.random() < 0.5:
            signed[random.randrange(64)] ^= 1 << random.randrange(8)
        assert MODULE.verifies(public, message, bytes(signed)) == oracle(public, message, bytes(signed))


@pytest.mark.parametrize(
    "public",
    [
        (2).to_bytes(32, "little"),  # no x belongs to this y
        (MODULE.P + 3).to_bytes(32, "little"),  # y not below P
        bytes([1]) + bytes(30) + bytes([0x80]),  # x = 0 with a sign
    ],
)
def test_a_public_key_has_one_spelling(public: bytes) -> None:
    assert MODULE.decode_point(public) is None
    assert not MODULE.verifies(public, b"", bytes([1]) + bytes(63))


# Clean logs


@pytest.mark.parametrize("size", [0, 1, 2, 3, 255, 256, 257, 511, 512, 513])
def test_a_clean_log_verifies_at_every_kind_of_size(tmp_path: Path, size: int) -> None:
    done = standalone(write_directory(tmp_path, rows_of(size), parts=True), [KEY])
    assert (done.code, done.output.endswith("OK\n")) == (0, True)
    assert f"all {size:,} entries" in done.output
    assert "NOT WITNESSED" in done.output


def test_a_log_over_two_levels_of_tiles_verifies_and_a_wrong_root_above_does_not(tmp_path: Path) -> None:
    path = write_directory(tmp_path, plain_rows(65_536 + 259))
    assert standalone(path, [KEY]).code == 0
    tree = MODULE.Directory(path, MODULE.Trust([KEY.format()]))  # without the entries, which take seconds
    tree.check_tree()
    tile = path / "tile/2/000.p/1"
    tile.write_bytes(noise("tile"))
    with pytest.raises(MODULE.BrokenError) as caught:
        tree.check_tree()
    assert caught.value.fault == "tile"


def test_without_a_key_or_a_log_it_cannot_tell(clean: Path, tmp_path: Path) -> None:
    assert standalone(clean, []).code == 2
    assert "KEY NOT PINNED" in standalone(clean, []).output
    assert standalone(tmp_path, [KEY]).code == 2
    assert standalone(tmp_path / "nothing", [KEY]).code == 2
    stranger = Ed25519Signer.from_seed(name=ORIGIN, seed=bytes(32)).verifier_key
    assert (standalone(clean, [stranger]).code, standalone(clean, [stranger]).fault) == (1, "signature")


@pytest.mark.parametrize(
    "vkey",
    ["", "x", "a+b", "a++", "a+00000000+", "a+00000000+AQ==", "a+00000000+x", "é+00000000+AAAA", KEY.format()[:-4]],
)
@pytest.mark.parametrize("option", ["--key", "--witness"])
def test_with_a_key_that_is_none_it_cannot_tell(clean: Path, option: str, vkey: str) -> None:
    done = run(str(clean), "--key", KEY.format(), option, vkey)
    assert done.code == 2
    assert done.output.startswith("could not tell: ")


def test_why_it_cannot_tell_is_no_output_of_it(clean: Path) -> None:
    arguments = [sys.executable, "-I", str(SCRIPT), str(clean), "--key", "x"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("could not tell: ")


def test_a_terminal_that_knows_ascii_only_is_told_of_names_beyond_it(
    tmp_path: Path, rows: list[SequencedEntry]
) -> None:
    text, lines = parse_note(signed([row.entry for row in rows]))
    note = format_note(text, [*lines, Signature(name="wítness漢", key_id=b"1234", signature=b"x")])
    path = write_directory(tmp_path, rows, note=note)
    arguments = [sys.executable, str(SCRIPT), str(path), "--key", KEY.format()]
    ascii_only = {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, env=ascii_only)
    assert (done.returncode, done.stderr) == (0, "")
    assert r"NOT CHECKED: a signature by 'w\xedtness\u6f22'" in done.stdout


def test_other_files_are_named_as_not_checked(copy: Path) -> None:
    for name in ("vkey", "README", "parts/notes"):
        (copy / name).write_text("?")
    done = standalone(copy, [KEY])
    assert done.code == 0
    assert [line for line in done.output.splitlines() if line.startswith("NOT CHECKED")] == [
        "NOT CHECKED: the file 'README'",
        "NOT CHECKED: the file 'parts/notes'",
    ]


def test_a_witness_that_is_named_must_have_signed_well(tmp_path: Path, rows: list[SequencedEntry]) -> None:
    witness = Cosigner.from_seed(ED25519_COSIGNATURE, name="witness.example/w", seed=bytes(32))
    root = root_of([row.leaf for row in rows])
    alone = sign_note(format_checkpoint(Checkpoint(origin=ORIGIN, size=SIZE, root=root)), [SIGNER])
    text, lines = parse_note(alone)
    line = witness.cosign(text, time_s=1_780_000_000)
    note = format_note(text, [*lines, line])
    path = write_directory(tmp_path, rows, note=note)
    assert "NOT CHECKED: a signature by 'witness.example/w'" in standalone(path, [KEY]).output
    done = standalone(path, [KEY], [witness.verifier_key])
    assert (done.code, "NOT WITNESSED" in done.output) == (0, False)
    bad = replace(line, signature=line.signature[:-1] + bytes([line.signature[-1] ^ 1]))
    for changed in (format_note(text, [*lines, bad]), alone):
        (path / "checkpoint").write_bytes(changed)
        assert standalone(path, [KEY], [witness.verifier_key]).fault == "signature"


def test_each_checkpoint_of_one_origin_needs_a_signature_of_its_own(rows: list[SequencedEntry]) -> None:
    note = signed([row.entry for row in rows])
    text, _ = parse_note(note)
    trust = MODULE.Trust([KEY.format()])
    assert trust.open_checkpoint(note)[0] == ORIGIN
    unsigned = format_note(text, [Signature(name=ORIGIN, key_id=b"1234", signature=b"x")])
    with pytest.raises(MODULE.BrokenError) as caught:
        trust.open_checkpoint(unsigned)
    assert caught.value.fault == "signature"


# Tampering: what ours finds, with its index, this one finds


def _ours(path: Path) -> tuple[str | None, int | None]:
    """Return the fault and the index that ours names; None for a log that verifies."""
    try:
        verify_directory(path, [KEY])
    except BrokenError as error:
        return error.fault.value, error.index
    except LedgerError:
        return "unknown", None
    return None, None


def agree(path: Path) -> None:
    fault, index = _ours(path)
    found = standalone(path, [KEY])
    assert found.code == {None: 0, "unknown": 2}.get(fault, 1), (fault, index, found)
    if index is not None:
        assert found.index == index, (fault, index, found)


@pytest.mark.parametrize("seed", range(30))
def test_both_refuse_a_random_corruption_and_name_the_same_first_bad_index(copy: Path, seed: int) -> None:
    random = Random(seed)  # noqa: S311 - the same in every run
    within = copy if seed % 2 else copy / "parts"  # where most files are, and few kinds of them
    file = random.choice(sorted(path for path in within.rglob("*") if path.is_file()))
    data = bytearray(file.read_bytes())
    at = random.randrange(len(data) + 1)
    match seed % 5:
        case 0:
            data[min(at, len(data) - 1)] ^= 1 << random.randrange(8)
        case 1:
            del data[at : at + random.randrange(1, 300)]
        case 2:
            data[at:at] = random.randbytes(random.randrange(1, 50))
        case 3:
            file.rename(file.with_name(f"{random.randrange(1000):03}"))
            agree(copy)
            return
        case 4:
            data = bytearray()
    file.write_bytes(data)
    agree(copy)


def test_both_find_logs_that_break_a_rule_though_they_are_signed(tmp_path: Path, rows: list[SequencedEntry]) -> None:
    def leave_out(at: int) -> list[SequencedEntry]:
        return rows[:at] + rows[at + 1 :]

    def swap(at: int) -> list[SequencedEntry]:
        return [*rows[:at], rows[at + 1], rows[at], *rows[at + 2 :]]

    broken = {
        "left out": leave_out(300),
        "swapped": swap(5),
        "twice": [*rows[:9], rows[8], *rows[9:]],
        "another log's": [*rows[:77], rows_of(SIZE, log="logs.example/other")[77], *rows[78:]],
        "cut in a group": rows[: next(r.index for r in rows if parse_entry(r.entry).of == 2) + 1],
    }
    for name, chosen in broken.items():
        path = write_directory(tmp_path / name, chosen)
        assert _ours(path)[1] is not None
        agree(path)


def test_both_find_parts_that_are_not_those_committed_to(copy: Path, rows: list[SequencedEntry]) -> None:
    first, second = (row for row in rows if row.parts and row.index in {0, 7})
    for index, parts in ((0, second.parts), (1, first.parts), (SIZE, first.parts)):
        path = copy / parts_path(index)
        kept = path.read_bytes() if path.exists() else None
        path.write_bytes(format_parts(index, parts))
        assert _ours(copy)[0] == Fault.PART
        agree(copy)
        path.unlink()
        if kept is not None:
            path.write_bytes(kept)
    assert _ours(copy) == (None, None)
