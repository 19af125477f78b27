#!/usr/bin/env python3
"""
Verify an exported Lakeproof log (a directory) or an evidence bundle (a file) with nothing but Python, 3.9 or later.

    python3 verify_lakeproof.py PATH --key VKEY [--key VKEY ...] [--witness VKEY ...]

Take VKEY, the log's verifier key, from those who run the log, never from where PATH came from: whoever changed the log
could have put a key there. Exit code 0: verified; 1: broken, the first fault is named; 2: could not tell.

1. Signatures: the checkpoint (origin, size, root hash) is signed by the log with your key, and by each witness you name.
2. Entries: each is canonical JSON, names this log and its index, and holds the leaf hash of the entry before it.
3. Tree: the Merkle tree over the entries has the signed root, so no bit of any of them differs from what was signed.
4. Directory: no file is missing, payloads beside entries are those committed to, and a log `…/2` goes on from log `…`.
5. Bundle: it holds what its `scope` line says, and you are told what of that is complete and what was selected.
NOT CHECKED, and named: time stamps, and signatures by whom you gave no key of, or not of Ed25519. Unless witnesses whom
you trust have signed it, a log that is verified here may have shown another history to others.
"""

# fmt: off
# ruff: noqa: B905, E401, E501, E701, I001, N818, PTH112, PTH113, PTH114, PTH123, SIM905, T201, TRY301
import argparse, base64, calendar, hashlib, io, json, os, re, sys  # all laid out by hand, to stay within 300 lines
class Broken(Exception): """With the text, the class of the fault, and the index of the first bad entry, or None."""
def need(holds, fault, text, index=None):
    if not holds: raise Broken(f"{fault} fault{'' if index is None else f' at index {index}'}: {text}", fault, index)

# 1. Signatures. Ed25519 (RFC 8032): points (x, y) of -x² + y² = 1 + Dx²y² modulo P; BASE has L multiples.
P, L = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D, ROOT_OF_MINUS_1 = -121665 * pow(121666, -1, P) % P, pow(2, (P - 1) // 4, P)
# C2SP signed-note and tlog-checkpoint: origin, size, root hash, perhaps more lines; then signature lines.
NOTE = re.compile("(([^\0-\x1f]+)\n(0|[1-9][0-9]{0,18})\n([A-Za-z0-9+/]{43}=)\n(?:[^\0-\x1f]+\n)*)\n"
                  "((?:\u2014 [^+\\s\0-\x1f]+ [A-Za-z0-9+/=]+\n){1,100})")
def add(p, q):
    t = D * p[0] * q[0] * p[1] * q[1] % P
    x, y, i = p[0] * q[1] + q[0] * p[1], p[1] * q[1] + p[0] * q[0], pow(1 - t * t, -1, P)
    return x * (1 - t) * i % P, y * (1 + t) * i % P  # x / (1 + t), y / (1 - t)
def times(n, p): return add(times(n >> 1, add(p, p)), p if n & 1 else (0, 1)) if n else (0, 1)
def decode_point(data):
    """Return the point that 32 bytes encode (RFC 8032, section 5.1.3), or None: y is below P, and zero has no sign."""
    y, sign = int.from_bytes(data, "little") & (2**255 - 1), data[31] >> 7
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    x = x if x * x % P == square else x * ROOT_OF_MINUS_1 % P
    exists = y < P and x * x % P == square and (x or not sign)
    return (x if x & 1 == sign else P - x, y) if exists else None
def verifies(public, message, signature):
    """Tell whether S·BASE - k·A is R (RFC 8032, section 5.1.7): S below L, and R in its only encoding."""
    a, r, s = decode_point(public), signature[:32], int.from_bytes(signature[32:], "little")
    if a is None or len(signature) != 64 or s >= L: return False
    k = int.from_bytes(hashlib.sha512(r + public + message).digest(), "little") % L
    x, y = add(times(s, decode_point(b"\x58" + b"\x66" * 31)), times(k, (P - a[0], a[1])))  # BASE has y = 4/5
    return (y | (x & 1) << 255).to_bytes(32, "little") == r
def unbase64(text, fault="checkpoint", index=None):
    data = base64.b64decode(text) if re.fullmatch("[A-Za-z0-9+/]*={0,2}", text) and len(text) % 4 == 0 else b""
    need(base64.b64encode(data).decode() == text, fault, "this is not base64, or in another spelling", index)
    return data
def key_id_of(name, kind, key): return hashlib.sha256(name.encode() + b"\n" + bytes([kind]) + key).hexdigest()[:8]
class Trust:
    """The verifier keys of the caller, `<name>+<key id>+<base64 of kind and key>`; who has signed; what is unchecked."""
    def __init__(self, keys, witnesses):
        self.known, self.seen, self.unchecked = {}, set(), []
        for kind, vkey in [(1, vkey) for vkey in keys] + [(4, vkey) for vkey in witnesses]:
            name, key_id, typed = vkey.split("+", 2)
            typed = base64.b64decode(typed, validate=True)
            if typed[:1] != bytes([kind]) or [key_id_of(name, kind, typed[1:]), len(typed)] != [key_id, 33]:
                raise ValueError(f"{vkey!r:.200} is no verifier key, or not of Ed25519, kind {kind}")
            self.known[name, key_id] = kind, typed[1:]
    def open_checkpoint(self, note):
        """Return (origin, size, root) if a key of that very log has signed; every line of a known key must verify."""
        match = NOTE.fullmatch(note.decode(errors="replace"))
        need(match and match[0].encode() == note and int(match[3]) < 2**63, "checkpoint", "this is no signed checkpoint")
        text, origin, size, root, lines = match.groups()
        for _, name, encoded in (line.split(" ") for line in lines[:-1].split("\n")):
            signer, signature, message = (name, unbase64(encoded)[:4].hex()), unbase64(encoded)[4:], text.encode()
            need(signature, "checkpoint", "a signature line without a signature")
            if signer not in self.known:
                self.unchecked.append(f"a signature by {name!a} under the checkpoint of {origin!a}")
                continue
            if self.known[signer][0] == 4:  # a witness signs its time, too (C2SP tlog-cosignature)
                message, signature = b"cosignature/v1\ntime %d\n" % int.from_bytes(signature[:8], "big") + message, signature[8:]
            need(verifies(self.known[signer][1], message, signature), "signature", f"that of {name!a} for {origin!a} is bad")
            self.seen.add((origin, *signer))
        signed = any(of == name == origin and self.known[name, key_id][0] == 1 for of, name, key_id in self.seen)
        need(signed, "signature", f"no key of {origin!a} that you named has signed its checkpoint")
        return origin, int(size), unbase64(root)

# 2. Entries: canonical JSON (RFC 8785, without floats), chained by their leaf hashes.
DECODER = json.JSONDecoder(parse_float=int, parse_constant=int)  # int refuses the texts of both
ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True)
HEX, COUNT = "[0-9a-f]", "(0|[1-9][0-9]{0,15})"
TIME = r"([0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\.[0-9]{6}Z)"
ENTRY = re.compile(  # an entry, to the byte; `data` is any object
    rf'{{"event":{{"actor":"({HEX}{{32}}|system)","data":({{.*}}),"key":"((?:[!#-\[\]-~]|\\["\\]){{1,2000}})","occurred_at":'
    rf'"{TIME}","parts":(\[(?:\["[a-z][a-z0-9_]{{0,62}}","{HEX}{{64}}"\],?)*(?<!,)\]),"type":"([a-z][a-z_]*\.[a-z][a-z_]*)",'
    rf'"version":{COUNT}}},"group":{{"branch":"(then|else)","id":"({HEX}{{8}}(?:-{HEX}{{4}}){{3}}-{HEX}{{12}})","of":{COUNT},'
    rf'"position":{COUNT}}},"index":{COUNT},"log":"([!#-*,-\[\]-~]{{1,255}})","previous":"({HEX}{{64}})","recorded_at":"{TIME}"}}')
MEMBERS = "actor data key occurred_at parts type version branch id of position index log previous recorded_at".split()
START = {"leaf": bytes(32), "recorded_at": "", "position": 0, "of": 1, "index": -1}  # what stands before index 0
def has_day(time): return int(time[:4]) and int(time[8:10]) <= calendar.monthrange(int(time[:4]), int(time[5:7]))[1]
def is_exact(value, level=3):
    """Tell whether all names are ASCII, integers within ±(2^53 - 1), and levels within 100, the entry being the first."""
    if not isinstance(value, (dict, list)): return not isinstance(value, int) or abs(value) < 2**53
    names, inner = (value, value.values()) if isinstance(value, dict) else ((), value)
    return level <= 100 and all(name.isascii() for name in names) and all(is_exact(one, level + 1) for one in inner)
def check_entry(data, origin, index=None):
    """Return the members of the entry that `data` is, of this log and at this index (None: wherever it says)."""
    try: told = (match := ENTRY.fullmatch(data.decode() if len(data) <= 65_535 else "")) and DECODER.decode(match[2])
    except (ValueError, RecursionError): match = None
    need(match, "entry", "this is no entry, or not as one is spelled", index)
    entry = dict(zip(MEMBERS, match.groups()), data=told, parts=json.loads(match[5]))
    entry.update((name, int(entry[name])) for name in ("version", "of", "position", "index"))
    entry["leaf"], names = hashlib.sha256(b"\x00" + data).digest(), [name for name, _ in entry["parts"]]
    exact = is_exact([told, entry["version"], entry["index"]], level=2) and entry["version"] and ENCODER.encode(told) == match[2]
    in_order = has_day(entry["occurred_at"]) and has_day(entry["recorded_at"]) and names == sorted(set(names))
    need(exact and in_order and entry["position"] < entry["of"] <= 1024, "entry", "its members are not canonical", index)
    need(entry["log"] == origin, "origin", f"this is an entry of {entry['log']!a}, not of {origin!a}", index)
    need(index in (entry["index"], None), "index", f"entry {entry['index']} stands here", index)
    return entry
def check_follows(entry, last):
    index, goes_on = entry["index"], last["position"] + 1 < last["of"]  # goes_on: the group of the one before
    need(entry["previous"] == last["leaf"].hex(), "chain", "`previous` is not the leaf hash of the entry before", index)
    need(entry["recorded_at"] >= last["recorded_at"], "time", "it was recorded before the entry before it", index)
    same = not goes_on or all(entry[name] == last[name] for name in ("id", "branch", "of"))
    need(same and entry["position"] == goes_on * (last["position"] + 1), "group", "a group is torn apart", index)
def check_part(entry, name, salted):  # the commitment is SHA-256(0x03 || salt of 32 bytes || payload)
    is_committed = len(salted) >= 32 and [name, hashlib.sha256(b"\x03" + salted).hexdigest()] in entry["parts"]
    need(is_committed, "part", f"{name!a} is not what the entry commits to", entry["index"])

# 3. The Merkle tree (RFC 6962): leaf = SHA-256(0x00 || entry), node = SHA-256(0x01 || left || right).
def root_of(hashes):
    """Return the root over hashes of one height, of which the last may be lower; a lone one is promoted."""
    while len(hashes) > 1:
        parents = [hashlib.sha256(b"\x01" + one + two).digest() for one, two in zip(hashes[::2], hashes[1::2])]
        hashes = parents + hashes[2 * len(parents) :]
    return hashes[0] if hashes else hashlib.sha256().digest()
def root_from(leaves, hashes, start, end):
    """Return the root over a range from its known leaves [(index, hash)]; where none is known, the next of `hashes`."""
    if not leaves or end - start == 1: return leaves[0][1] if leaves else next(hashes, b"")
    middle = start + (1 << (end - start - 1).bit_length() - 1)  # the largest power of two below the width
    left = [leaf for leaf in leaves if leaf[0] < middle]
    return root_of([root_from(left, hashes, start, middle), root_from(leaves[len(left) :], hashes, middle, end)])

# 4. An exported directory (C2SP tlog-tiles): checkpoint, tile/entries/…, tile/<level>/…, parts/…
PART = '{"bytes":"([A-Za-z0-9+/=]*)","name":"([a-z0-9_]+)","salt":"([A-Za-z0-9+/]{43}=)"}'
def path_of(folder, index, width=256):
    *above, last = (digits.zfill(3) for digits in f"{index:,}".split(","))
    return "/".join([folder, *("x" + digits for digits in above), last]) + (f".p/{width}" if width < 256 else "")
class Directory:
    """The files of an exported log, and links to folders, which are not followed; `files` are those not read yet."""
    def __init__(self, root, trust):
        def fail(error): raise error
        self.root, self.files = root, {os.path.relpath(f"{top}/{name}", root) for top, folders, names in os.walk(root, onerror=fail)
                                       for name in names + [link for link in folders if os.path.islink(f"{top}/{link}")]}
        if not any(path == "checkpoint" or path.startswith("tile/") for path in self.files): raise OSError(f"there is no exported log in {root}")
        self.origin, self.size, self.signed = trust.open_checkpoint(self.read("checkpoint", 1_000_000, "checkpoint"))
    def read(self, path, size_max, fault, index=None):
        need(os.path.isfile(f"{self.root}/{path}"), fault, f"there is no file {path}", index)
        with open(f"{self.root}/{path}", "rb") as file: data = file.read(size_max + 1)
        need(len(data) <= size_max, fault, f"{path} is larger than {size_max} bytes", index)
        self.files.discard(path)
        return data
    def tile(self, level, index):
        width = min(256, (self.size >> 8 * level) - 256 * index)
        data = self.read(path_of(f"tile/{level}", index, width), 8192, "tile")
        need(len(data) == 32 * width, "tile", f"tile {index} of level {level} does not hold {width} hashes")
        return [data[at : at + 32] for at in range(0, len(data), 32)]
    def check_parts(self, entry):
        index, path = entry["index"], path_of("parts", entry["index"])
        text = self.read(path, 4_194_304, "part", index).decode(errors="replace")
        is_canonical = re.fullmatch(rf'{{"index":{index},"parts":\[(?:{PART}(?:,(?={{)|(?=\])))*\]}}', text)
        need(is_canonical, "part", f"{path} does not hold the parts of this entry", index)
        for payload, name, salt in re.findall(PART, text):
            check_part(entry, name, unbase64(salt, "part", index) + unbase64(payload, "part", index))
CONTINUED = re.compile("^(.+/(?:[0-9a-f]{32}|system))/([2-9]|[1-9][0-9]{1,8})$")
def check_continued(entry, trust):
    """The first entry of a log `<origin>/2` holds what that of `<origin>` had signed last, `/3` that of `/2`; no other does."""
    found, told, old = CONTINUED.match(entry["log"]), entry["data"], Trust([], [])
    before = found and found[1] + ("" if found[2] == "2" else f"/{int(found[2]) - 1}")
    says = entry["type"] == "log.continued" and [told.get("origin")]
    need(says == (bool(found) and [before]), "origin", f"it goes on from {says!a}, and must from {before!a}", 0)
    if not found: return
    kinds = {name: type(value) for name, value in told.items()} == {"note": str, "origin": str, "root": str, "size": int}
    need(kinds and re.fullmatch(HEX + "{64}", told["root"]), "entry", "its members are not those of its type", 0)
    old.known = {(name, key_id_of(name, 1, key)): (1, key) for (of, _), (kind, key) in trust.known.items() if kind == 1
                 for name in {of, before if of == entry["log"] else of}}  # one signer signs both, with a name for each
    need(old.open_checkpoint(told["note"].encode())[0] == before, "origin", f"the note in it is not of {before!a}", 0)
def verify_directory(root, trust):
    log, last, first_entry, groups, edge = Directory(root, trust), START, None, set(), []
    for first in range(0, log.size, 256):
        path = path_of("tile/entries", first // 256, min(256, log.size - first))
        data, at = log.read(path, 256 * 65_537, "index", first), 0
        for index, leaf in enumerate(log.tile(0, first // 256), first):
            need(at < len(data), "index", f"{path} ends before this entry", index)
            start, at = at + 2, at + 2 + int.from_bytes(data[at : at + 2], "big")  # an entry stands behind its length
            entry = check_entry(data[start:at] if at <= len(data) else b"", log.origin, index)
            check_follows(entry, last)
            need(entry["leaf"] == leaf, "entry", "it and its hash in the tile differ: one was changed", index)
            need(entry["position"] or entry["id"] not in groups, "group", "this group stands in the log already", index)
            if path_of("parts", index) in log.files: log.check_parts(entry)
            groups.add(entry["id"])
            first_entry, last = first_entry or entry, entry
        need(at == len(data), "index", f"{path} goes on behind its last entry", index + 1)
    need(last["position"] + 1 == last["of"], "group", "the last group is not complete", log.size)
    for level in range(8):  # `edge`: the root of what lies behind the complete tiles, up to this level
        for index in range(log.size >> 8 * level + 8):  # complete tiles: the root of each is a hash of the level above
            same = root_of(log.tile(level, index)) == log.tile(level + 1, index // 256)[index % 256]
            need(same, "tile", f"tile {index // 256} of level {level + 1} does not hold the root of tile {index} below")
        if (log.size >> 8 * level) % 256: edge = [root_of(log.tile(level, log.size >> 8 * level + 8) + edge)]
    need(root_of(edge) == log.signed, "root", "the root over all entries is not the signed one")
    if first_entry: check_continued(first_entry, trust)
    for path in sorted(log.files - {"vkey"}):
        is_ours = re.fullmatch("tile/.*|parts/((?!x000)x[0-9]{3}/(x[0-9]{3}/)*)?[0-9]{3}", path, re.DOTALL)
        need(not is_ours, "part" if path.startswith("parts") else "tile", f"there is a file {path!a} too many")
        trust.unchecked.append(f"the file {path!a}")
    return f"COMPLETE: all {log.size:,} entries of {log.origin!a}, and every part that is disclosed"

# 5. An evidence bundle: a first line, `scope …`, and a section: lines `entry …`, under each its `part <name> <base64
# of salt and payload>`; `proof <base64 of hashes>`; `checkpoint <bytes>` and the note; perhaps `stamp …`. After `anchor`, a
# section of the log `system` may follow: its entry says which size and root hash the other log had when it was recorded.
def check_section(data, at, trust):
    """Check the section at this byte; return its end, its checkpoint (origin, size, root) and its entries."""
    match = re.compile(rb"\nproof ([^\n]*)\ncheckpoint ([1-9][0-9]{0,5}|1000000)\n").search(data, at)
    need(match, "proof", f"expected a section of evidence at byte {at}")
    end, entries, name = match.end() + int(match[2]), [], ""
    origin, size, signed = trust.open_checkpoint(data[match.end() : end])
    for word, _, line in (line[:-1].partition(b" ") for line in io.BytesIO(data[at : match.start() + 1])):
        last = entries[-1] if entries else START
        if word == b"part" and entries:
            before, (name, _, salted) = name, line.decode(errors="replace").partition(" ")
            need(before < name, "part", "its parts are out of order", last["index"])
            check_part(last, name, unbase64(salted, "part", last["index"]))
            continue
        need(word == b"entry" and len(entries) < 10_000, "proof", "expected entries and their parts, at most 10,000 entries")
        entry, name = check_entry(line, origin), ""
        in_order = last["index"] < entry["index"] < size and last["recorded_at"] <= entry["recorded_at"]
        need(in_order, "index", "an entry out of order, or not signed", entry["index"])
        if entry["index"] == last["index"] + 1: check_follows(entry, last)
        entries.append(entry)
    proof = unbase64(match[1].decode(errors="replace"), "proof")
    hashes, leaves = (proof[at : at + 32] for at in range(0, len(proof), 32)), [(e["index"], e["leaf"]) for e in entries]
    need(entries and root_from(leaves, hashes, 0, size) == signed and not next(hashes, b""), "proof", "it leads to another root")
    if stamp := re.compile(rb"stamp ([A-Za-z0-9+/=]+)\n").match(data, end):
        trust.unchecked.append(f"the time stamp of {len(unbase64(stamp[1].decode(), 'proof'))} bytes, over {origin!a}")
    return stamp.end() if stamp else end, (origin, size, signed), entries
def check_scope(kind, words, entries, size):
    """Check that the entries are what the scope line says; return in words what of that is complete."""
    if kind == "decision":  # <group id> [<key>]: it, what names it, perhaps rules; without a key, the whole group
        own = [e for e in entries if words[0] in (e["id"], e["data"].get("decision")) and words[1:] in ([], [e["key"]])]
        group = [e for e in own if e["id"] == words[0]]
        is_decision = any(e["type"] == "commit.decided" for e in group) and (words[1:] or len(group) == group[0]["of"])
        only_rules = all(e in own or e["type"].startswith(("policy.", "access_rule.")) for e in entries)
        need(is_decision and only_rules, "proof", "not one decision, whole, with what names it and rules")
        return "SELECTION: the log may hold other outcomes; that rules here are those it was judged by is NOT CHECKED"
    since, until = words[-2:] if len(words) > 1 else ("", "~")
    need(len(words) == 1 or (has_day(since) and has_day(until) and since < until), "proof", "this is no period of time")
    before, after = [e for e in entries if e["recorded_at"] < since], [e for e in entries if e["recorded_at"] >= until]
    if kind == "table":  # <key> [<from> <to>]
        need({e["key"] for e in entries} == {words[0]} and not before + after, "proof", "an entry out of scope")
        return "SELECTION: the log may hold other entries about this"
    first, last = entries[0]["index"], entries[-1]["index"]  # period <from> <to>, with a neighbour on each side
    need(last - first == len(entries) - 1, "proof", "an entry was left out")
    ends = len(before) == (first > 0 or entries[0] in before), len(after) == (last < size - 1 or entries[-1] in after)
    need(all(ends), "proof", "the neighbours on both sides, before and after the period, are not these")
    return f"COMPLETE: the {len(entries) - len(before + after):,} of the period" + ("" if after else ", as far as signed")
def verify_bundle(path, trust):
    with open(path, "rb") as file: data = file.read(67_108_865)
    if not data.startswith(b"lakeproof/evidence@v1\n"): raise OSError(f"{path} is no evidence bundle")
    scope = data[22 : data.find(b"\n", 22)].decode(errors="replace")
    form = rf"scope (decision [0-9a-f-]{{36}}( [!-~]+)?|table [!-~]+( {TIME} {TIME})?|period {TIME} {TIME})"
    need(re.fullmatch(form, scope) and len(data) <= 67_108_864, "proof", "no scope of a known kind, or over 64 MiB")
    at, (origin, size, root), entries = check_section(data, 23 + len(scope), trust)
    said = check_scope(scope.split(" ")[1], scope.split(" ")[2:], entries, size)
    system = CONTINUED.sub(r"\1", origin).rpartition("/")[0] + "/system"  # of the same installation; it can go on, too
    if data.startswith(b"anchor\n", at) and system not in [CONTINUED.sub(r"\1", name) for name, _ in trust.known]:
        at, trust.unchecked = len(data), [*trust.unchecked, f"the anchor in the log {system!a}: name its key, too"]
    elif data.startswith(b"anchor\n", at):
        at, (where, _, _), anchors = check_section(data, at + 7, trust)
        said_in = [(CONTINUED.sub(r"\1", where), anchor["type"], anchor["data"]) for anchor in anchors]
        tree = {"origin": origin, "root": root.hex(), "size": size}
        need(said_in == [(system, "logs.anchored", tree)], "anchor", f"it is of another tree, or not in {system!a}")
    need(at == len(data), "proof", "it goes on behind its end")
    for e in entries: print(f"entry {e['index']}, {e['recorded_at']}: {e['type']} {e['key']} {json.dumps(e['data'])}")
    return f"PROVEN: {len(entries)} entries of {origin!a}, as signed with {size:,}\n{said}"
def main():
    parser = argparse.ArgumentParser(description="Verify an exported log or an evidence bundle.")
    parser.add_argument("path")
    parser.add_argument("--key", action="append", default=[], metavar="VKEY", help="the verifier key of a log")
    parser.add_argument("--witness", action="append", default=[], metavar="VKEY", help="one that must have signed, too")
    chosen = parser.parse_args()
    try:
        trust = Trust(chosen.key, chosen.witness)
        if not chosen.key: raise ValueError("KEY NOT PINNED: name the log's verifier key with --key")
        said = (verify_directory if os.path.isdir(chosen.path) else verify_bundle)(chosen.path, trust)
        absent = {signer for signer, key in trust.known.items() if key[0] == 4} - {seen[1:] for seen in trust.seen}
        need(not absent, "signature", f"witnesses have not signed: {sorted(absent)!a}")
    except Broken as error: sys.exit(print(f"{error.args[0]}\nBROKEN") or 1)
    except (OSError, ValueError, RecursionError) as error: sys.exit(print(f"could not tell: {error}", file=sys.stderr) or 2)
    print(*(f"NOT CHECKED: {what}" for what in trust.unchecked), said, sep="\n")
    print("OK" if chosen.witness else "NOT WITNESSED: the log alone vouches for this, no witness that you named\nOK")
if __name__ == "__main__": main()
