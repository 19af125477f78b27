#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Verify an exported Lakeproof log (a directory) or an evidence bundle (a file) with nothing but Python, 3.9 or later.

    python3 verify_lakeproof.py PATH --key VKEY [--key VKEY ...] [--witness VKEY ...]

Take VKEY, the log's verifier key, from those who run the log, never from where PATH came from: whoever changed the log
could have put a key there. Exit code 0: verified; 1: broken, the first fault is named; 2: could not tell.

What is checked, in the order of this file:

1. Signatures: the checkpoint (origin, size, root hash) is signed by your key of the log, and by each witness you name.
2. Tree: the Merkle tree over the entries has the signed root, so no bit of any of them differs from what was signed.
3. Entries: each is canonical JSON, names this log and its index, and holds the leaf hash of the entry before it.
4. Directory: no file is missing, payloads of entries are those committed to, and a log `…/2` continues the log `…`.
5. Bundle: it holds what its `scope` line says, and it is reported what of that is complete and what was selected.

NOT CHECKED, and named: time stamps, and signatures that are not of Ed25519 or for which you gave no key. Unless
witnesses that you trust have signed it, a log that is verified here may have shown another history to others.
"""

import argparse
import base64
import calendar
import hashlib
import json
import os
import pathlib
import re
import sys


class BrokenError(Exception):
    """The first fault that was found: its class, and the index of the first bad entry, or None."""

    def __init__(self, fault, text, index=None):
        where = "" if index is None else f" at index {index}"
        super().__init__(f"{fault} fault{where}: {text}")
        self.fault = fault
        self.index = index


def need(condition, fault, text, index=None):
    if not condition:
        raise BrokenError(fault, text, index)


def say(line):
    sys.stdout.write(line + "\n")


def unbase64(text, fault="checkpoint", index=None):
    """Return the bytes that base64 stands for; each sequence of bytes has one spelling only."""
    try:
        data = base64.b64decode(text)
    except ValueError:
        data = b""
    need(base64.b64encode(data).decode() == text, fault, "this is not base64, or in another spelling", index)
    return data


# 1. Signatures. First Ed25519 (RFC 8032): a point is a pair (x, y) with -x² + y² = 1 + D·x²·y² modulo P.

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493  # the order of the group that BASE generates
D = -121665 * pow(121666, -1, P) % P
ROOT_OF_MINUS_1 = pow(2, (P - 1) // 4, P)


def add(p, q):
    """Return the sum of two points (RFC 8032, section 5.1.4, without its projective coordinates)."""
    x1, y1 = p
    x2, y2 = q
    t = D * x1 * x2 * y1 * y2 % P
    inverse = pow(1 - t * t, -1, P)  # one inversion for both: 1 / (1 + t) = (1 - t) / (1 - t²), and so for 1 - t
    x = (x1 * y2 + x2 * y1) * (1 - t) * inverse % P
    y = (y1 * y2 + x1 * x2) * (1 + t) * inverse % P
    return x, y


def multiply(n, point):
    product = (0, 1)  # the neutral element
    while n:
        if n & 1:
            product = add(product, point)
        point = add(point, point)
        n >>= 1
    return product


def decode_point(data):
    """Return the point that 32 bytes encode (RFC 8032, section 5.1.3), or None: y is below P, and zero has no sign."""
    y = int.from_bytes(data, "little") & (2**255 - 1)
    sign = data[31] >> 7
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * ROOT_OF_MINUS_1 % P
    if y >= P or x * x % P != square or (x == 0 and sign):
        return None
    return (x if x & 1 == sign else P - x), y


BASE = decode_point(b"\x58" + b"\x66" * 31)  # y = 4/5


def verifies(public, message, signature):
    """Return whether S·BASE - k·A is R (RFC 8032, section 5.1.7): S is below L, and R is in its only encoding."""
    a = decode_point(public)
    r, s = signature[:32], int.from_bytes(signature[32:], "little")
    if a is None or len(signature) != 64 or s >= L:
        return False
    k = int.from_bytes(hashlib.sha512(r + public + message).digest(), "little") % L
    minus_a = (P - a[0], a[1])
    x, y = add(multiply(s, BASE), multiply(k, minus_a))
    return (y | (x & 1) << 255).to_bytes(32, "little") == r


# Keys and notes (C2SP signed-note). A verifier key is `<name>+<key id>+<base64 of kind and public key>`.

LOG_KEY = 1  # Ed25519, of who writes a note
WITNESS_KEY = 4  # Ed25519, of who cosigns it with a time (C2SP tlog-cosignature)

# A checkpoint (C2SP tlog-checkpoint) as a note: its text, an empty line, and lines with a signature each.
NOTE = re.compile(
    "(?P<text>"
    "(?P<origin>[^\0-\x1f]+)\n"
    "(?P<size>0|[1-9][0-9]{0,18})\n"
    "(?P<root>[A-Za-z0-9+/]{43}=)\n"
    "(?:[^\0-\x1f]+\n)*"  # perhaps further lines
    ")\n"
    "(?P<signatures>(?:\u2014 [^+\\s\0-\x1f]+ [A-Za-z0-9+/=]+\n){1,100})"  # each an em dash, a name, base64
)


def key_id_of(name, kind, key):
    return hashlib.sha256(name.encode() + b"\n" + bytes([kind]) + key).hexdigest()[:8]


class Trust:
    """The verifier keys that the caller trusts, the witnesses that have not signed, and what was not checked."""

    def __init__(self, log_keys=(), witness_keys=()):
        self.known = {}  # (name, key id): (kind, public key)
        for vkey in log_keys:
            self.add_key(vkey, LOG_KEY)
        for vkey in witness_keys:
            self.add_key(vkey, WITNESS_KEY)
        self.absent_witnesses = {signer for signer, (kind, _) in self.known.items() if kind == WITNESS_KEY}
        self.unchecked = []

    def add_key(self, vkey, kind):
        name, _, rest = vkey.partition("+")
        key_id, _, encoded = rest.partition("+")
        try:
            data = base64.b64decode(encoded, validate=True)
        except ValueError:
            data = b""
        key = data[1:]
        if data[:1] != bytes([kind]) or len(key) != 32 or key_id != key_id_of(name, kind, key):
            raise ValueError(f"{vkey!r:.200} is no verifier key, or not of Ed25519, kind {kind}")
        self.known[name, key_id] = kind, key

    def open_checkpoint(self, note):
        """Return (origin, size, root) if a key of that very log has signed; every line of a known key must verify."""
        match = NOTE.fullmatch(note.decode(errors="replace"))
        is_note = match and match[0].encode() == note and int(match["size"]) < 2**63
        need(is_note, "checkpoint", "this is no signed checkpoint")
        origin, message = match["origin"], match["text"].encode()
        signers = [self.check_signature(origin, message, line) for line in match["signatures"].splitlines()]
        text = f"no key of {origin!a} that you named has signed its checkpoint"
        need((origin, LOG_KEY) in signers, "signature", text)
        return origin, int(match["size"]), unbase64(match["root"])

    def check_signature(self, origin, message, line):
        """Return (name, kind) of the known key that has made this signature, or None if no known key has."""
        _, name, encoded = line.split(" ")
        data = unbase64(encoded)
        key_id, signature = data[:4].hex(), data[4:]
        need(signature, "checkpoint", "a signature line without a signature")
        if (name, key_id) not in self.known:
            self.unchecked.append(f"a signature by {name!a} under the checkpoint of {origin!a}")
            return None
        kind, key = self.known[name, key_id]
        if kind == WITNESS_KEY:
            time_s, signature = int.from_bytes(signature[:8], "big"), signature[8:]
            message = b"cosignature/v1\ntime %d\n" % time_s + message
        need(verifies(key, message, signature), "signature", f"that of {name!a} for {origin!a} is bad")
        self.absent_witnesses.discard((name, key_id))
        return name, kind


# 2. The Merkle tree (RFC 6962, section 2.1): the hash of a leaf is SHA-256(0x00 || entry), of a node as follows.


def node_hash(left, right):
    return hashlib.sha256(b"\x01" + left + right).digest()


def root_of(hashes):
    """Return the root over hashes of one height, of which the last may be lower; a lone one is promoted."""
    while len(hashes) > 1:
        parents = [node_hash(hashes[i], hashes[i + 1]) for i in range(0, len(hashes) - 1, 2)]
        hashes = parents + hashes[2 * len(parents) :]
    return hashes[0] if hashes else hashlib.sha256().digest()


def root_from(leaves, hashes, start, end):
    """
    Return the root over the entries from `start` to `end`, of which some leaves are known, as [(index, hash)].

    `hashes` is an iterator: its next hash is the root of the next subtree, from the left, in which no leaf is known.
    """
    if not leaves:
        return next(hashes, b"")
    if end - start == 1:
        return leaves[0][1]
    middle = start + (1 << (end - start - 1).bit_length() - 1)  # the largest power of two below the width
    left = [leaf for leaf in leaves if leaf[0] < middle]
    right = leaves[len(left) :]
    return node_hash(root_from(left, hashes, start, middle), root_from(right, hashes, middle, end))


# 3. Entries: canonical JSON (RFC 8785, without floats), chained by their leaf hashes.

HEX = "[0-9a-f]"
COUNT = "(?:0|[1-9][0-9]{0,15})"
TIME = (
    "[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
    r"T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\.[0-9]{6}Z"
)
ENTRY_BYTES_MAX = 65_535
ENTRY = re.compile(  # to the byte; `data` is any object
    r'{"event":{'
    rf'"actor":"(?P<actor>{HEX}{{32}}|system)",'
    r'"data":(?P<data>{.*}),'
    r'"key":"(?P<key>(?:[!#-\[\]-~]|\\["\\]){1,2000})",'
    rf'"occurred_at":"(?P<occurred_at>{TIME})",'
    rf'"parts":(?P<parts>\[(?:\["[a-z][a-z0-9_]{{0,62}}","{HEX}{{64}}"\],?)*(?<!,)\]),'
    r'"type":"(?P<type>[a-z][a-z_]*\.[a-z][a-z_]*)",'
    rf'"version":(?P<version>{COUNT})}},'
    r'"group":{'
    r'"branch":"(?P<branch>then|else)",'
    rf'"id":"(?P<id>{HEX}{{8}}(?:-{HEX}{{4}}){{3}}-{HEX}{{12}})",'
    rf'"of":(?P<of>{COUNT}),'
    rf'"position":(?P<position>{COUNT})}},'
    rf'"index":(?P<index>{COUNT}),'
    r'"log":"(?P<log>[!#-*,-\[\]-~]{1,255})",'
    rf'"previous":"(?P<previous>{HEX}{{64}})",'
    rf'"recorded_at":"(?P<recorded_at>{TIME})"}}'
)
START = {"leaf": bytes(32), "recorded_at": "", "position": 0, "of": 1, "index": -1}  # what stands before index 0
GROUP_ENTRIES_MAX = 1024
LEVELS_MAX = 100
DECODER = json.JSONDecoder(parse_float=int, parse_constant=int)  # int refuses fractions, exponents and NaN
ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def is_within_limits(value, level):
    """Return whether names are ASCII, numbers within ±(2^53 - 1), and levels at most 100, of which the entry is one."""
    if isinstance(value, dict):
        if not all(name.isascii() for name in value):
            return False
        value = list(value.values())
    if isinstance(value, list):
        return level <= LEVELS_MAX and all(is_within_limits(inner, level + 1) for inner in value)
    return not isinstance(value, int) or abs(value) < 2**53


def has_day(time):
    year, month, day = int(time[:4]), int(time[5:7]), int(time[8:10])
    return year > 0 and day <= calendar.monthrange(year, month)[1]


def check_entry(data, origin, index=None):
    """Return the members of the entry that `data` is, of this log and at this index (None: wherever it says)."""
    try:
        match = ENTRY.fullmatch(data.decode()) if len(data) <= ENTRY_BYTES_MAX else None
        content = DECODER.decode(match["data"]) if match else None
    except (ValueError, RecursionError):
        match = None
    need(match, "entry", "this is no entry, or not as one is spelled", index)
    entry = match.groupdict()
    entry.update(data=content, parts=json.loads(match["parts"]), leaf=hashlib.sha256(b"\x00" + data).digest())
    for name in ("version", "of", "position", "index"):
        entry[name] = int(entry[name])
    names = [name for name, _ in entry["parts"]]
    is_canonical = (
        is_within_limits(content, level=3)
        and ENCODER.encode(content) == match["data"]  # the same bytes: no space, no member twice, names sorted
        and 0 < entry["version"] < 2**53
        and entry["index"] < 2**53
        and entry["position"] < entry["of"] <= GROUP_ENTRIES_MAX
        and names == sorted(set(names))
        and has_day(entry["occurred_at"])
        and has_day(entry["recorded_at"])
    )
    need(is_canonical, "entry", "its members are not canonical", index)
    need(entry["log"] == origin, "origin", f"this is an entry of {entry['log']!a}, not of {origin!a}", index)
    need(index in (entry["index"], None), "index", f"entry {entry['index']} stands here", index)
    return entry


def check_follows(entry, last):
    """Check that an entry follows `last`, the entry before it: hash, time, and group."""
    index = entry["index"]
    need(entry["previous"] == last["leaf"].hex(), "chain", "`previous` is not the leaf hash of the entry before", index)
    need(entry["recorded_at"] >= last["recorded_at"], "time", "it was recorded before the entry before it", index)
    if last["position"] + 1 == last["of"]:
        follows = entry["position"] == 0
    else:  # the group of the entry before is not complete yet
        is_same_group = all(entry[name] == last[name] for name in ("id", "branch", "of"))
        follows = is_same_group and entry["position"] == last["position"] + 1
    need(follows, "group", "a group is torn apart", index)


def check_part(entry, name, salted):
    """Check a payload part, a salt of 32 bytes and the payload: the entry has SHA-256(0x03 || salt || payload)."""
    commitment = [name, hashlib.sha256(b"\x03" + salted).hexdigest()]
    is_committed = len(salted) >= 32 and commitment in entry["parts"]
    need(is_committed, "part", f"{name!a} is not what the entry commits to", entry["index"])


# 4. An exported directory (C2SP tlog-tiles): checkpoint, tile/entries/…, tile/<level>/…, parts/…

CHECKPOINT_BYTES_MAX = 1_000_000
PARTS_BYTES_MAX = 4_194_304
PART = '{"bytes":"([A-Za-z0-9+/=]*)","name":"([a-z0-9_]+)","salt":"([A-Za-z0-9+/]{43}=)"}'
LOG_FILE = re.compile("tile/.*|parts/((?!x000)x[0-9]{3}/(x[0-9]{3}/)*)?[0-9]{3}", re.DOTALL)


def path_of(folder, index, width=256):
    """Return the path of a tile: 1234067 is x001/x234/067, and it ends in .p/<width> if it is not full."""
    *above, last = (digits.zfill(3) for digits in f"{index:,}".split(","))
    path = "/".join([folder, *("x" + digits for digits in above), last])
    return f"{path}.p/{width}" if width < 256 else path


def list_files(folder):
    """Yield the paths of all files below a folder. Links to folders count as files, and are not followed."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from list_files(entry.path)
            else:
                yield entry.path


class Directory:
    """The files of an exported log, its checkpoint opened; `unread` are those that nothing has read yet."""

    def __init__(self, root, trust):
        self.root = root
        self.unread = {pathlib.Path(path).relative_to(root).as_posix() for path in list_files(root)}
        if not any(path == "checkpoint" or path.startswith("tile/") for path in self.unread):
            raise OSError(f"there is no exported log in {root}")
        note = self.read("checkpoint", CHECKPOINT_BYTES_MAX, "checkpoint")
        self.origin, self.size, self.root_hash = trust.open_checkpoint(note)

    def read(self, path, size_max, fault, index=None):
        file_path = self.root / path
        need(file_path.is_file(), fault, f"there is no file {path}", index)
        with file_path.open("rb") as file:
            data = file.read(size_max + 1)
        need(len(data) <= size_max, fault, f"{path} is larger than {size_max} bytes", index)
        self.unread.discard(path)
        return data

    def tile(self, level, index):
        width = min(256, (self.size >> 8 * level) - 256 * index)
        data = self.read(path_of(f"tile/{level}", index, width), 256 * 32, "tile")
        need(len(data) == 32 * width, "tile", f"tile {index} of level {level} does not hold {width} hashes")
        return [data[at : at + 32] for at in range(0, len(data), 32)]

    def entries(self):
        """Yield index, bytes and leaf hash, from the tile, of each entry; in its file it stands behind its length."""
        for first in range(0, self.size, 256):
            end = min(first + 256, self.size)
            path = path_of("tile/entries", first // 256, end - first)
            data = self.read(path, 256 * (2 + ENTRY_BYTES_MAX), "index", first)
            at = 0
            for index, leaf in enumerate(self.tile(0, first // 256), first):
                need(at < len(data), "index", f"{path} ends before this entry", index)
                start = at + 2
                at = start + int.from_bytes(data[at:start], "big")
                entry = data[start:at] if at <= len(data) else b""  # what is cut off is no entry
                yield index, entry, leaf
            need(at == len(data), "index", f"{path} has bytes behind its last entry", end)

    def check_parts(self, entry):
        """Check the payload parts that the export has of an entry, if any."""
        index = entry["index"]
        path = path_of("parts", index)
        if path not in self.unread:
            return
        text = self.read(path, PARTS_BYTES_MAX, "part", index).decode(errors="replace")
        is_canonical = re.fullmatch(rf'{{"index":{index},"parts":\[(?:{PART}(?:,(?={{)|(?=\])))*\]}}', text)
        need(is_canonical, "part", f"{path} does not hold the parts of this entry", index)
        for payload, name, salt in re.findall(PART, text):
            check_part(entry, name, unbase64(salt, "part", index) + unbase64(payload, "part", index))

    def check_tree(self):
        """Check that each tile holds the roots of those below it, and that the tree has the signed root."""
        edge = []  # the root over what lies behind the full tiles, up to this level
        for level in range(8):
            for index in range(self.size >> 8 * level + 8):
                root, above = root_of(self.tile(level, index)), self.tile(level + 1, index // 256)
                text = f"tile {index // 256} of level {level + 1} does not hold the root of tile {index} below"
                need(above[index % 256] == root, "tile", text)
            if (self.size >> 8 * level) % 256:
                edge = [root_of(self.tile(level, self.size >> 8 * level + 8) + edge)]
        need(root_of(edge) == self.root_hash, "root", "the root over all entries is not the signed one")

    def check_no_others(self, trust):
        """Check that nothing else lies where files of a log belong; other files are named as not checked."""
        for path in sorted(self.unread - {"vkey"}):
            fault = "part" if path.startswith("parts") else "tile"
            need(not LOG_FILE.fullmatch(path), fault, f"there is a file {path!a} too many")
            trust.unchecked.append(f"the file {path!a}")


def verify_directory(root, trust):
    log = Directory(root, trust)
    first_entry, last, group_ids = None, START, set()
    for index, data, leaf in log.entries():
        entry = check_entry(data, log.origin, index)
        check_follows(entry, last)
        need(entry["leaf"] == leaf, "entry", "it and its hash in the tile differ: one was changed", index)
        is_new = entry["position"] > 0 or entry["id"] not in group_ids
        need(is_new, "group", "this group stands in the log already", index)
        log.check_parts(entry)
        group_ids.add(entry["id"])
        first_entry = first_entry or entry
        last = entry
    need(last["position"] + 1 == last["of"], "group", "the last group is not complete", log.size)
    log.check_tree()
    if first_entry:
        check_continued(first_entry, trust)
    log.check_no_others(trust)
    return f"COMPLETE: all {log.size:,} entries of {log.origin!a}, and every part that is disclosed"


# A log that was recovered continues another: `<origin>/2` the log `<origin>`, `<origin>/3` the log `<origin>/2`.

CONTINUED = re.compile("^(.+/(?:[0-9a-f]{32}|system))/([2-9]|[1-9][0-9]{1,8})$")


def check_continued(first_entry, trust):
    """Check that the first entry holds the checkpoint that the log before had signed last, and that no other does."""
    origin, data = first_entry["log"], first_entry["data"]
    before = None
    match = CONTINUED.match(origin)
    if match:
        before = match[1] if match[2] == "2" else f"{match[1]}/{int(match[2]) - 1}"
    is_continued = first_entry["type"] == "log.continued"
    found = data.get("origin") if is_continued else None
    text = f"it continues {found!a}, and must continue {before!a}"
    need(is_continued == (before is not None) and found == before, "origin", text, 0)
    if before is None:
        return
    types = {name: type(value) for name, value in data.items()}
    is_formed = types == {"note": str, "origin": str, "root": str, "size": int}
    need(is_formed and re.fullmatch(HEX + "{64}", data["root"]), "entry", "its members are not those of its type", 0)
    earlier = Trust()
    for (name, key_id), (kind, key) in trust.known.items():
        if kind == LOG_KEY:
            earlier.known[name, key_id] = kind, key
            if name == origin:  # one signer signs both logs, each under the log's own name
                earlier.known[before, key_id_of(before, kind, key)] = kind, key
    signed_origin, _, _ = earlier.open_checkpoint(data["note"].encode())
    need(signed_origin == before, "origin", f"the note in it is not of {before!a}", 0)


# 5. An evidence bundle: a first line, `scope …`, and a section: lines `entry …`, under each its `part <name> <base64 of
# salt and payload>`; `proof <base64 of hashes>`; `checkpoint <bytes>` and the note; perhaps `stamp …`. After `anchor`,
# a section of the log `system` may follow: its entry says which size and root the other log had at that time.

BUNDLE_HEADER = b"lakeproof/evidence@v1\n"
BUNDLE_BYTES_MAX = 67_108_864
BUNDLE_ENTRIES_MAX = 10_000
PROOF_AND_CHECKPOINT = re.compile(rb"\nproof ([^\n]*)\ncheckpoint ([1-9][0-9]{0,5}|1000000)\n")
STAMP = re.compile(rb"stamp ([A-Za-z0-9+/=]+)\n")
SCOPE = re.compile(rf"scope (decision [0-9a-f-]{{36}}( [!-~]+)?|table [!-~]+( {TIME} {TIME})?|period {TIME} {TIME})")


def check_section(data, at, trust):
    """Check the section at this byte; return its end, its checkpoint (origin, size, root) and its entries."""
    match = PROOF_AND_CHECKPOINT.search(data, at)
    need(match, "proof", f"expected a section of evidence at byte {at}")
    end = match.end() + int(match[2])
    origin, size, root = trust.open_checkpoint(data[match.end() : end])
    entries = check_section_entries(data[at : match.start()].split(b"\n"), origin, size)
    proof = unbase64(match[1].decode(errors="replace"), "proof")
    hashes = (proof[i : i + 32] for i in range(0, len(proof), 32))
    leaves = [(entry["index"], entry["leaf"]) for entry in entries]
    is_proven = root_from(leaves, hashes, 0, size) == root and not next(hashes, b"")
    need(is_proven, "proof", "it leads to another root")
    stamp = STAMP.match(data, end)
    if stamp:
        stamp_bytes = len(unbase64(stamp[1].decode(), "proof"))
        trust.unchecked.append(f"the time stamp of {stamp_bytes} bytes, over {origin!a}")
        end = stamp.end()
    return end, (origin, size, root), entries


def check_section_entries(lines, origin, size):
    """Return the entries of a section, checked with their parts; those that are neighbours in the log are chained."""
    entries, part_name = [], ""
    for line in lines:
        word, _, content = line.partition(b" ")
        last = entries[-1] if entries else START
        if word == b"part" and entries:
            name, _, salted = content.decode(errors="replace").partition(" ")
            need(part_name < name, "part", "its parts are out of order", last["index"])
            check_part(last, name, unbase64(salted, "part", last["index"]))
            part_name = name
            continue
        is_entry = word == b"entry" and len(entries) < BUNDLE_ENTRIES_MAX
        need(is_entry, "proof", "expected entries and their parts, at most 10,000 entries")
        entry = check_entry(content, origin)
        in_order = last["index"] < entry["index"] < size and last["recorded_at"] <= entry["recorded_at"]
        need(in_order, "index", "an entry out of order, or not signed", entry["index"])
        if entry["index"] == last["index"] + 1:
            check_follows(entry, last)
        entries.append(entry)
        part_name = ""
    return entries


def check_decision(entries, decision, key=None):
    """Check evidence of a decision: its group, or the entries of it with this key, what names it, and perhaps rules."""
    own = [
        entry
        for entry in entries
        if decision in (entry["id"], entry["data"].get("decision")) and key in (None, entry["key"])
    ]
    group = [entry for entry in own if entry["id"] == decision]
    is_decided = any(entry["type"] == "commit.decided" for entry in group)
    is_whole = is_decided and (key is not None or len(group) == group[0]["of"])
    others = [entry for entry in entries if entry not in own]
    are_rules = all(entry["type"].startswith(("policy.", "access_rule.")) for entry in others)
    need(is_whole and are_rules, "proof", "not one decision, whole, with what names it and rules")
    return "SELECTION: the log may hold other outcomes; that rules here are those it was judged by is NOT CHECKED"


def check_table(entries, key, since="", until="~"):
    """Check evidence of a table: entries with its key, of a period if one is named; times compare as text."""
    is_own = all(entry["key"] == key and since <= entry["recorded_at"] < until for entry in entries)
    need(is_own, "proof", "an entry out of scope")
    return "SELECTION: the log may hold other entries about this"


def check_period(entries, size, since, until):
    """Check evidence of a period: all of its entries, and the neighbour on each side as long as the log has one."""
    first, last = entries[0], entries[-1]
    need(last["index"] - first["index"] == len(entries) - 1, "proof", "an entry was left out")
    before = [entry for entry in entries if entry["recorded_at"] < since]
    after = [entry for entry in entries if entry["recorded_at"] >= until]
    is_bounded_before = len(before) == (first["index"] > 0 or first in before)
    is_bounded_after = len(after) == (last["index"] < size - 1 or last in after)
    text = "the neighbours on both sides, before and after the period, are not these"
    need(is_bounded_before and is_bounded_after, "proof", text)
    count = len(entries) - len(before) - len(after)
    return f"COMPLETE: the {count:,} of the period" + ("" if after else ", as far as signed")


def check_scope(scope, entries, size):
    """Check that the entries are what the scope line says; return in words what of that is complete."""
    _, kind, *words = scope.split(" ")
    if kind == "decision":
        return check_decision(entries, *words)
    if len(words) > 1:
        since, until = words[-2:]
        need(has_day(since) and has_day(until) and since < until, "proof", "this is no period of time")
    if kind == "table":
        return check_table(entries, *words)
    return check_period(entries, size, *words)


def first_origin(origin):
    """Return the origin without the number of its continuation."""
    return CONTINUED.sub(r"\1", origin)


def check_anchor(data, at, tree, trust):
    """Check the section of the system log at this byte: its one entry anchors `tree` (origin, size, root)."""
    origin, size, root = tree
    system = first_origin(origin).rpartition("/")[0] + "/system"  # of the same installation
    if system not in [first_origin(name) for name, _ in trust.known]:
        trust.unchecked.append(f"the anchor in the log {system!a}: name its key, too")
        return len(data)
    end, (anchored_in, _, _), entries = check_section(data, at, trust)
    is_anchor = (
        len(entries) == 1
        and first_origin(anchored_in) == system
        and entries[0]["type"] == "logs.anchored"
        and entries[0]["data"] == {"origin": origin, "root": root.hex(), "size": size}
    )
    need(is_anchor, "anchor", f"it is of another tree, or not in {system!a}")
    return end


def verify_bundle(path, trust):
    """Print the entries of a bundle, and return in words what it proves."""
    with path.open("rb") as file:
        data = file.read(BUNDLE_BYTES_MAX + 1)
    if not data.startswith(BUNDLE_HEADER):
        raise OSError(f"{path} is no evidence bundle")
    start = len(BUNDLE_HEADER)
    end = data.find(b"\n", start)
    scope = data[start:end].decode(errors="replace")
    is_bundle = SCOPE.fullmatch(scope) and len(data) <= BUNDLE_BYTES_MAX
    need(is_bundle, "proof", "no scope of a known kind, or over 64 MiB")
    at, tree, entries = check_section(data, end + 1, trust)
    completeness = check_scope(scope, entries, tree[1])
    if data.startswith(b"anchor\n", at):
        at = check_anchor(data, at + len(b"anchor\n"), tree, trust)
    need(at == len(data), "proof", "it has bytes behind its end")
    for entry in entries:
        content = json.dumps(entry["data"])
        say(f"entry {entry['index']}, {entry['recorded_at']}: {entry['type']} {entry['key']} {content}")
    origin, size, _ = tree
    return f"PROVEN: {len(entries)} entries of {origin!a}, as signed with {size:,}\n{completeness}"


# 6. The result, and the exit code.


def verify(options):
    trust = Trust(options.key, options.witness)
    if not options.key:
        raise ValueError("KEY NOT PINNED: name the log's verifier key with --key")
    path = pathlib.Path(options.path)
    result = verify_directory(path, trust) if path.is_dir() else verify_bundle(path, trust)
    absent = sorted(trust.absent_witnesses)
    need(not absent, "signature", f"witnesses have not signed: {absent!a}")
    for what in trust.unchecked:
        say(f"NOT CHECKED: {what}")
    say(result)
    if not options.witness:
        say("NOT WITNESSED: the log alone vouches for this, no witness that you named")
    say("OK")


def main():
    parser = argparse.ArgumentParser(description="Verify an exported log or an evidence bundle.")
    parser.add_argument("path")
    parser.add_argument("--key", action="append", default=[], metavar="VKEY", help="the verifier key of a log")
    parser.add_argument("--witness", action="append", default=[], metavar="VKEY", help="one that must have signed, too")
    try:
        verify(parser.parse_args())
    except BrokenError as error:
        say(f"{error}\nBROKEN")
        sys.exit(1)
    except (OSError, ValueError, RecursionError) as error:
        sys.stderr.write(f"could not tell: {error}\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
