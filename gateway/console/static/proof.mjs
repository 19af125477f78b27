// SPDX-License-Identifier: Apache-2.0
/**
 * What a log has signed, checked with nothing but a browser: signed notes, cosignatures and quorums, Merkle proofs.
 *
 * Each function returns, or throws a `Broken` at the first fault, named as in `ledger/errors.py`; none returns a
 * boolean that could be forgotten. docs/formats.md has the formats. SHA-256 and Ed25519 are those of WebCrypto, which
 * browsers give to pages over https, on localhost and in files, and not over plain http (`whatIsMissing`).
 *
 * Hashes are Uint8Arrays of 32 bytes; indexes and sizes are numbers or BigInts. ML-DSA-44 is not checked here.
 */

/** Something is not what was signed: the class of the fault, and the index of the first bad entry, or null. */
export class Broken extends Error {
  constructor(fault, words, index = null) {
    super(`${fault} fault${index === null ? '' : ` at index ${index}`}: ${words}`);
    Object.assign(this, { fault, index });
  }
}

/** Nothing is proven and nothing refuted: browser, keys, policy or file do not allow a check. */
export class CannotTell extends Error {}

export function need(condition, fault, words, index) {
  if (!condition) throw new Broken(fault, words, index);
}

// Bytes and texts: bytes have one spelling in base64, numbers have one in decimal.

export const utf8 = (text) => new TextEncoder().encode(text);
export const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
export const same = (a, b) => hex(a) === hex(b);
const fromHex = (text) => Uint8Array.from(text.match(/../g), (pair) => parseInt(pair, 16));

export function fromUtf8(bytes, fault) {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new Broken(fault, 'this is not UTF-8');
  }
}

export function fromBase64(text, fault) {
  let binary = null;
  try {
    binary = atob(text);
  } catch {
    // It stays null, and is refused as other spellings are.
  }
  need(binary !== null && btoa(binary) === text, fault, 'this is not base64, or in another spelling');
  return Uint8Array.from(binary, (character) => character.charCodeAt(0));
}

export function fromDecimal(text, fault) {
  const isNumber = /^(0|[1-9][0-9]{0,18})$/.test(text) && BigInt(text) < 2n ** 63n;
  need(isNumber, fault, `expected a number from 0 to 2^63 - 1, found ${text.slice(0, 40)}`);
  return BigInt(text);
}

// Hashes and signatures (WebCrypto)

export async function sha256(...pieces) {
  const joined = new Uint8Array(pieces.reduce((size, piece) => size + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    joined.set(piece, at);
    at += piece.length;
  }
  return new Uint8Array(await crypto.subtle.digest('SHA-256', joined));
}

async function hasSigned(publicKey, message, signature) {
  const key = await crypto.subtle.importKey('raw', publicKey, { name: 'Ed25519' }, false, ['verify']);
  return crypto.subtle.verify({ name: 'Ed25519' }, key, signature, message);
}

/** Return in words why nothing can be checked here, or null: a known signature must verify, and a changed one not. */
export async function whatIsMissing() {
  if (!globalThis.crypto?.subtle) {
    return (
      'there is no WebCrypto here (crypto.subtle): browsers give it to pages over https, on localhost and in files, ' +
      'and not over plain http. Open this page over https, or download the verifier and open the file'
    );
  }
  const key = fromHex('d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a'); // RFC 8032, section 7.1
  const signature = fromHex(
    'e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46b' +
      'd25bf5f0595bbe24655141438e7a100b',
  );
  const changed = Uint8Array.from(signature, (byte, at) => (at === 0 ? byte ^ 1 : byte));
  try {
    const nothing = new Uint8Array(0);
    if ((await hasSigned(key, nothing, signature)) && !(await hasSigned(key, nothing, changed))) return null;
  } catch {
    // It does not know the algorithm.
  }
  return 'this browser does not verify Ed25519 signatures: use a newer one, or verify_lakeproof.py';
}

// The Merkle tree (RFC 6962, section 2.1). Proofs are checked as RFC 9162 says, sections 2.1.3.2 and 2.1.4.2.

export const leafHash = (entry) => sha256(Uint8Array.of(0), entry);
export const nodeHash = (left, right) => sha256(Uint8Array.of(1), left, right);
const areHashes = (hashes) => hashes.every((hash) => hash.length === 32);

/** Check that `leaf`, a leaf hash, stands at `index` of the tree of `size` entries that has this root. */
export async function verifyInclusion({ index, size, leaf, proof, root }) {
  let [fn, sn, r] = [BigInt(index), BigInt(size) - 1n, leaf];
  need(fn >= 0n && fn <= sn, 'proof', `expected an index below the size ${size}, found ${index}`);
  need(areHashes([leaf, root, ...proof]), 'proof', 'expected hashes of 32 bytes');
  for (const p of proof) {
    need(sn !== 0n, 'proof', 'expected a shorter proof');
    if (fn & 1n || fn === sn) {
      r = await nodeHash(p, r);
      while (!(fn & 1n) && fn !== 0n) [fn, sn] = [fn >> 1n, sn >> 1n];
    } else {
      r = await nodeHash(r, p);
    }
    [fn, sn] = [fn >> 1n, sn >> 1n];
  }
  need(sn === 0n, 'proof', 'expected a longer proof');
  need(same(r, root), 'proof', `it leads to the root ${hex(r)}, and signed is ${hex(root)}`);
}

/** Check that the tree of `size2` begins with the tree of `size1`: that nothing was rewritten or removed. */
export async function verifyConsistency({ size1, size2, root1, root2, proof }) {
  const [small, large] = [BigInt(size1), BigInt(size2)];
  need(areHashes([root1, root2, ...proof]), 'proof', 'expected hashes of 32 bytes');
  if (small === large && small >= 0n) {
    const isEmpty = small === 0n;
    const isRoot = same(root1, root2) && (!isEmpty || same(root1, await sha256()));
    need(isRoot && proof.length === 0, 'proof', `expected one root for the size ${small}, and no hashes`);
    return;
  }
  need(small > 0n && small < large, 'proof', `expected a size from 1 to the larger one, ${large}, found ${small}`);
  need(proof.length > 0, 'proof', 'expected a longer proof');
  const isPerfect = (small & (small - 1n)) === 0n; // then the smaller tree is a node of the larger one
  const path = isPerfect ? [root1, ...proof] : proof;
  let [fn, sn] = [small - 1n, large - 1n];
  while (fn & 1n) [fn, sn] = [fn >> 1n, sn >> 1n];
  let [fr, sr] = [path[0], path[0]];
  for (const c of path.slice(1)) {
    need(sn !== 0n, 'proof', 'expected a shorter proof');
    if (fn & 1n || fn === sn) {
      [fr, sr] = [await nodeHash(c, fr), await nodeHash(c, sr)];
      while (!(fn & 1n) && fn !== 0n) [fn, sn] = [fn >> 1n, sn >> 1n];
    } else {
      sr = await nodeHash(sr, c);
    }
    [fn, sn] = [fn >> 1n, sn >> 1n];
  }
  need(sn === 0n, 'proof', 'expected a longer proof');
  need(same(fr, root1), 'proof', `it leads to another root of the size ${small}`);
  need(same(sr, root2), 'proof', `it leads to another root of the size ${large}`);
}

// Keys and notes (C2SP signed-note), checkpoints (tlog-checkpoint), cosignatures (tlog-cosignature)

export const [ED25519, COSIGNATURE, ML_DSA_44] = [1, 4, 6];
const KEY_SIZES = { [ED25519]: 32, [COSIGNATURE]: 32, [ML_DSA_44]: 1312 };
const NAME = /^[^\0-\x20+\p{White_Space}]+$/u;

/** Return the key that `vkey` spells: `<name>+<key id, 8 hex digits>+<base64 of type and public key>`. */
export async function parseKey(vkey) {
  const [, name = '', keyId = '', encoded = ''] = /^([^+]*)\+([0-9a-f]{8})\+([^]*)$/.exec(vkey) ?? [];
  const typed = fromBase64(encoded, 'key');
  const [type, publicKey] = [typed[0], typed.slice(1)];
  const isKey = NAME.test(name) && KEY_SIZES[type] === publicKey.length;
  // The rest is not shown: it may be a private key, which begins alike.
  need(isKey, 'key', `expected <name>+<8 hex digits>+<base64>, found ${name.slice(0, 80)}+…`);
  const found = hex((await sha256(utf8(`${name}\n`), typed)).slice(0, 4));
  need(found === keyId, 'key', `the key of ${name} has the id ${found}, and says ${keyId}`);
  return { name, type, publicKey, id: `${name}+${keyId}` };
}

/** Return text and signature lines of a note, *unverified*: only `openCheckpoint` says who has signed it. */
export function parseNote(note) {
  need(note.length <= 1_000_000, 'checkpoint', 'expected a note of at most 1,000,000 bytes');
  const whole = fromUtf8(note, 'checkpoint');
  const border = whole.lastIndexOf('\n\n');
  const [text, lines] = [whole.slice(0, border + 1), whole.slice(border + 2).split('\n')];
  const isNote = border >= 0 && lines.pop() === '' && !/[\0-\x09\x0b-\x1f]/.test(text);
  need(isNote && lines.length >= 1 && lines.length <= 100, 'checkpoint', 'expected a text and 1 to 100 signatures');
  const signatures = lines.map((line) => {
    const [, name = '', encoded = ''] = /^\u2014 ([^ ]*) ([^ ]*)$/.exec(line) ?? [];
    const data = fromBase64(encoded, 'checkpoint');
    need(NAME.test(name) && data.length > 4, 'checkpoint', 'a line that is no signature');
    return { name, id: `${name}+${hex(data.slice(0, 4))}`, signature: data.slice(4) };
  });
  return { text, signatures };
}

/** Return the checkpoint in the text of a note: a line each for origin, size, root in base64, and extensions. */
export function parseCheckpoint(text) {
  const [origin, size = '', encoded = '', ...extensions] = text.split('\n');
  const hasLines = extensions.pop() === '' && origin !== '' && !extensions.includes('');
  const root = fromBase64(encoded, 'checkpoint');
  need(hasLines && root.length === 32, 'checkpoint', 'expected lines of origin, size and root hash');
  return { origin, size: fromDecimal(size, 'checkpoint'), root };
}

/** Check every line that one of `keys` claims; return the ids of those that have signed, with times (POSIX, or 0n). */
async function checkSignatures({ text, signatures }, keys) {
  const known = new Map(keys.map((key) => [key.id, key]));
  const times = new Map();
  for (const { id, signature } of signatures.filter((line) => known.has(line.id))) {
    const { type, publicKey } = known.get(id);
    const isTimed = type === COSIGNATURE;
    let [time, isSigned] = [0n, false];
    if (signature.length === (isTimed ? 72 : 64)) {
      if (isTimed) time = new DataView(signature.buffer).getBigUint64(0);
      const message = utf8(isTimed ? `cosignature/v1\ntime ${time}\n${text}` : text);
      const checking = hasSigned(publicKey, message, isTimed ? signature.slice(8) : signature);
      isSigned = await checking.catch(() => false); // the bytes are no public key
    }
    const isInTime = time < 253_402_300_800n; // the year 10000
    need(isSigned && isInTime, 'signature', `the signature of ${id} is bad`);
    times.set(id, times.get(id) || time);
  }
  return times;
}

/** Return the checkpoint in a note, if a key of its own log is among `keys` and has signed it. */
export async function openCheckpoint(note, keys) {
  const parsed = parseNote(note);
  const signers = await checkSignatures(parsed, keys);
  const found = parsed.signatures.map((line) => line.id).join(', ');
  need(signers.size > 0, 'signature', `none of the keys that you trust has signed it, but ${found}`);
  const checkpoint = parseCheckpoint(parsed.text);
  const isOwn = keys.some((key) => key.name === checkpoint.origin && signers.has(key.id));
  need(isOwn, 'signature', `no key of ${checkpoint.origin} that you trust has signed its checkpoint`);
  return checkpoint;
}

// Trust policies (C2SP tlog-policy): which logs, which witnesses, and how many of them must have cosigned

/** Return the policy that a text holds; it has one quorum, and no name before the line that defines it. */
export async function parsePolicy(text) {
  const policy = { logs: [], witnesses: [], groups: [], quorum: null };
  const [names, placed] = [new Set(['none']), new Set()];
  const checkKnown = (name) => need(names.has(name), 'policy', `no line before defines ${name}`);
  const define = (name) => need(!names.has(name) && names.add(name), 'policy', `the name ${name} is taken`);
  need(text.length <= 2_000_000 && !/[\0-\x08\x0b-\x1f\x7f]/.test(text), 'policy', 'too long, or a control character');
  need(text.endsWith('\n'), 'policy', 'expected a newline at the end of every line: it may have been cut off');
  for (const line of text.split('\n')) {
    const [word = '#', ...rest] = line.split(/[ \t]+/).filter((each) => each !== '');
    const [name, second, ...members] = rest;
    if (word.startsWith('#')) {
      continue;
    } else if (word === 'log' && (rest.length === 1 || rest.length === 2)) {
      policy.logs.push(await parseKey(name));
    } else if (word === 'witness' && (rest.length === 2 || rest.length === 3)) {
      define(name);
      policy.witnesses.push({ name, key: await parseKey(second) });
      need(policy.witnesses.at(-1).key.type !== ED25519, 'policy', `${name} has no key of a cosigner`);
    } else if (word === 'group' && members.length > 0) {
      for (const member of members) {
        checkKnown(member);
        need(member !== 'none' && !placed.has(member), 'policy', `${member} may be in one group, once`);
        placed.add(member);
      }
      const counts = new Map([['any', 1n], ['all', BigInt(members.length)]]);
      const threshold = counts.get(second) ?? fromDecimal(second, 'policy');
      need(threshold >= 1n && threshold <= members.length, 'policy', `expected 1 to ${members.length} of ${name}`);
      define(name);
      policy.groups.push({ name, threshold, members });
    } else if (word === 'quorum' && rest.length === 1 && policy.quorum === null) {
      checkKnown(name);
      policy.quorum = name;
    } else {
      throw new Broken('policy', `expected a log, a witness, a group, or one quorum, found ${line.slice(0, 200)}`);
    }
  }
  need(policy.quorum !== null, 'policy', 'expected a quorum line, found none');
  const { logs, witnesses, groups } = policy;
  need([logs, witnesses, groups].every((lines) => lines.length <= 64), 'policy', 'more than 64 lines of one kind');
  for (const keys of [logs, witnesses.map((witness) => witness.key)]) {
    const publicKeys = new Set(keys.map((key) => hex(key.publicKey)));
    need(publicKeys.size === keys.length, 'policy', 'expected a public key of its own for each log, and each witness');
  }
  return policy;
}

/**
 * Return the names of the witnesses that have cosigned a note, with times (POSIX), or null if they make no quorum.
 *
 * A time of zero does not count: it does not say that the tree was the largest one seen.
 */
export async function openCosignatures(note, { witnesses, groups, quorum }) {
  const checkable = witnesses.filter((witness) => witness.key.type === COSIGNATURE);
  const times = await checkSignatures(parseNote(note), checkable.map((witness) => witness.key));
  const seen = checkable.filter((witness) => (times.get(witness.key.id) ?? 0n) > 0n);
  const met = new Set(seen.map((witness) => witness.name));
  for (const { name, threshold, members } of groups) { // each stands behind its members
    if (members.filter((member) => met.has(member)).length >= threshold) met.add(name);
  }
  return met.has(quorum) ? new Map(seen.map((witness) => [witness.name, times.get(witness.key.id)])) : null;
}
