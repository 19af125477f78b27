// SPDX-License-Identifier: Apache-2.0
/**
 * Checks an evidence bundle in a browser, as `ledger/proving/evidence/check.py` does: same steps, same order.
 *
 * The steps are at the end of this file. NOT CHECKED, and named in the result: time stamps, signatures by keys that
 * were not given, and those of ML-DSA-44. One thing is stricter than there: with a witness policy, its quorum must be
 * met.
 */

import {
  Broken,
  CannotTell,
  ML_DSA_44,
  fromBase64,
  fromDecimal,
  fromUtf8,
  hex,
  leafHash,
  need,
  nodeHash,
  openCheckpoint,
  openCosignatures,
  parseKey,
  parseNote,
  parsePolicy,
  same,
  sha256,
  utf8,
  whatIsMissing,
} from './proof.mjs';

// Entries: canonical JSON (RFC 8785, without floats) of exactly these members, chained by their leaf hashes

/** Return the one spelling of a value, undefined if it has none: names are ASCII, numbers are integers below 2^53. */
function canonical(value, depth = 1) {
  if (typeof value === 'string') return value.isWellFormed() ? JSON.stringify(value) : undefined;
  if (typeof value === 'number') return Number.isSafeInteger(value) ? String(value) : undefined;
  if (value === null || typeof value === 'boolean') return String(value);
  if (typeof value !== 'object' || depth > 100) return undefined;
  const isList = Array.isArray(value);
  const pieces = (isList ? value : Object.keys(value).sort()).map((one) => {
    if (isList) return canonical(one, depth + 1);
    const inner = /^[\0-\x7f]*$/.test(one) ? canonical(value[one], depth + 1) : undefined;
    return inner === undefined ? undefined : `${JSON.stringify(one)}:${inner}`;
  });
  if (pieces.includes(undefined)) return undefined;
  return isList ? `[${pieces.join(',')}]` : `{${pieces.join(',')}}`;
}

const text = (form) => (value) => typeof value === 'string' && form.test(value);
const count = (least, most) => (value) => Number.isSafeInteger(value) && value >= least && value <= most;
const object = (value) => value !== null && typeof value === 'object' && !Array.isArray(value);
const members = (forms) => (value) =>
  object(value) &&
  Object.keys(value).length === Object.keys(forms).length &&
  Object.entries(forms).every(([name, hasForm]) => Object.hasOwn(value, name) && hasForm(value[name]));

function isTime(value) {
  if (!text(/^(?!0000)\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/)(value)) return false;
  const time = new Date(`${value.slice(0, 19)}Z`);
  return !Number.isNaN(time.getTime()) && time.toISOString().slice(0, 19) === value.slice(0, 19); // no 30th of February
}

const isHash = text(/^[0-9a-f]{64}$/);
const isGroupId = text(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);
const isKey = text(/^[!-~]{1,2000}$/);
const isPartName = text(/^[a-z][a-z0-9_]{0,62}$/);
const isCommitment = (pair) => Array.isArray(pair) && pair.length === 2 && isPartName(pair[0]) && isHash(pair[1]);
const areParts = (parts) =>
  Array.isArray(parts) && parts.every((pair, at) => isCommitment(pair) && (at === 0 || parts[at - 1][0] < pair[0]));
const isEvent = members({
  actor: text(/^([0-9a-f]{32}|system)$/),
  data: object,
  key: isKey,
  occurred_at: isTime,
  parts: areParts,
  type: text(/^[a-z][a-z_]*\.[a-z][a-z_]*$/),
  version: count(1, Number.MAX_SAFE_INTEGER),
});
const isGroup = members({ branch: text(/^(then|else)$/), id: isGroupId, of: count(1, 1024), position: count(0, 1023) });
const isEntry = members({
  event: isEvent,
  group: isGroup,
  index: count(0, Number.MAX_SAFE_INTEGER),
  log: text(/^[!#-*,-[\]-~]{1,255}$/),
  previous: isHash,
  recorded_at: isTime,
});

function parseEntry(bytes) {
  const spelled = fromUtf8(bytes, 'entry');
  let value;
  try {
    value = JSON.parse(spelled);
  } catch {
    // It stays undefined, which has no spelling.
  }
  need(canonical(value) === spelled, 'entry', 'this is not JSON in its canonical spelling');
  need(isEntry(value) && value.group.position < value.group.of, 'entry', 'its members are not those of an entry');
  return value;
}

/** Return the entries of a section, checked with their parts: {entry, leaf, parts}; neighbours are chained. */
async function checkEntries(section, checkpoint) {
  const checked = [];
  for (const { bytes, parts } of section.entries) {
    const entry = parseEntry(bytes);
    const { index } = entry;
    need(entry.log === checkpoint.origin, 'origin', `an entry of ${entry.log}, not of ${checkpoint.origin}`, index);
    need(index < checkpoint.size, 'index', `the signed tree has ${checkpoint.size} entries`, index);
    if (checked.length > 0) checkFollows(entry, checked.at(-1));
    for (const { name, salted } of parts) {
      const committed = entry.event.parts.find((pair) => pair[0] === name)?.[1];
      const found = hex(await sha256(Uint8Array.of(3), salted));
      need(committed === found, 'part', `the part ${name} is not what the entry commits to`, index);
    }
    checked.push({ entry, leaf: await leafHash(bytes), parts });
  }
  return checked;
}

function checkFollows({ index, recorded_at: time, previous, group }, { entry: before, leaf }) {
  need(index > before.index, 'index', `expected an index over ${before.index}`, index);
  need(time >= before.recorded_at, 'time', `recorded before the entry ${before.index}`, index);
  if (index !== before.index + 1) return;
  need(previous === hex(leaf), 'chain', '`previous` is not the leaf hash of the entry before', index);
  const isComplete = before.group.position + 1 === before.group.of;
  const isSame = ['id', 'branch', 'of'].every((name) => group[name] === before.group[name]);
  const isNext = isComplete ? group.position === 0 : isSame && group.position === before.group.position + 1;
  need(isNext, 'group', 'a group is torn apart', index);
}

/** Check that entries and proof lead to the signed root, and that the proof has exactly the hashes that it needs. */
async function checkRoot(checked, section, { size, root }) {
  const hashes = section.proof.values();
  const rootFrom = async (leaves, start, end) => {
    if (leaves.length === 0) { // of a subtree that holds none of the entries, the proof has the root
      const { value, done } = hashes.next();
      need(!done, 'proof', 'expected a longer proof');
      return value;
    }
    if (end - start === 1n) return leaves[0].leaf;
    const middle = start + 2n ** BigInt((end - start - 1n).toString(2).length - 1); // where RFC 6962 splits
    const left = await rootFrom(leaves.filter(({ entry }) => entry.index < middle), start, middle);
    return nodeHash(left, await rootFrom(leaves.filter(({ entry }) => entry.index >= middle), middle, end));
  };
  const found = await rootFrom(checked, 0n, size);
  need(hashes.next().done, 'proof', 'expected a shorter proof');
  need(same(found, root), 'proof', `they lead to the root ${hex(found)}, and signed is ${hex(root)}`);
}

// The bundle: a first line, `scope …`, a section; after `anchor`, perhaps a section of the system log

const HEADER = utf8('lakeproof/evidence@v1\n');
const COMMITMENT_SIZE_MIN = 73; // the bytes that an entry has for each of its parts

function parseBundle(data) {
  need(data.length <= 2 ** 26, 'proof', 'expected at most 64 MiB');
  const lines = new Lines(data, HEADER.length);
  const scope = parseScope(lines.text('scope'));
  const section = parseSection(lines);
  const anchor = lines.skips('anchor\n') ? parseSection(lines) : null;
  need(lines.at === data.length, 'proof', `${data.length - lines.at} bytes behind its end`);
  return { scope, section, anchor };
}

function parseSection(lines) {
  const entries = [];
  while (lines.begins('entry ')) {
    const [bytes, parts] = [lines.rest('entry'), []];
    need(bytes.length >= 1 && bytes.length <= 65_535, 'proof', 'expected an entry of 1 to 65,535 bytes');
    while (lines.begins('part ')) {
      const said = lines.text('part');
      const [name] = said.split(' ', 1);
      const salted = fromBase64(said.slice(name.length + 1), 'proof');
      const isNext = isPartName(name) && (parts.length === 0 || parts.at(-1).name < name);
      need(isNext && salted.length >= 32, 'proof', 'expected parts by name, each with a salt of 32 bytes');
      parts.push({ name, salted, payload: salted.slice(32) });
      need(parts.length <= bytes.length / COMMITMENT_SIZE_MIN, 'proof', 'more parts than the entry can commit to');
    }
    entries.push({ bytes, parts });
    need(entries.length <= 10_000, 'proof', 'expected at most 10,000 entries');
  }
  need(entries.length > 0, 'proof', `expected an entry at byte ${lines.at}`);
  const [joined, proof] = [fromBase64(lines.text('proof'), 'proof'), []];
  for (let at = 0; at < joined.length; at += 32) proof.push(joined.subarray(at, at + 32));
  need(joined.length % 32 === 0, 'proof', 'expected hashes of 32 bytes');
  const note = lines.take(Number(fromDecimal(lines.text('checkpoint'), 'proof')));
  const stamp = lines.begins('stamp ') ? fromBase64(lines.text('stamp'), 'proof') : null;
  need(stamp === null || (stamp.length >= 1 && stamp.length <= 65_536), 'proof', 'a time stamp of no allowed size');
  return { entries, proof, note, stamp };
}

class Lines {
  constructor(data, at) {
    Object.assign(this, { data, at });
  }

  begins(word) {
    return same(this.data.subarray(this.at, this.at + word.length), utf8(word));
  }

  skips(word) {
    const found = this.begins(word);
    if (found) this.at += word.length;
    return found;
  }

  /** Return what follows `word` on the next line, which must begin with it. */
  rest(word) {
    const end = this.data.indexOf(10, this.at);
    need(this.begins(`${word} `) && end >= 0, 'proof', `expected a line '${word} …' at byte ${this.at}`);
    const rest = this.data.subarray(this.at + word.length + 1, end);
    this.at = end + 1;
    return rest;
  }

  text(word) {
    return fromUtf8(this.rest(word), 'proof');
  }

  take(size) {
    const isThere = size >= 1 && size <= 1_000_000 && this.at + size <= this.data.length;
    need(isThere, 'proof', `expected a checkpoint of 1 to 1,000,000 bytes at byte ${this.at}`);
    this.at += size;
    return this.data.slice(this.at - size, this.at);
  }
}

// The scope: what a bundle says that it is about, and how much of that follows from its entries (`evidence/scope.py`)

function parseScope(said) {
  const [kind, ...words] = said.split(' ');
  const [since, until] = words.slice(-2);
  const isPeriod = words.length >= 2 && isTime(since) && isTime(until) && since < until;
  const shape = `${kind} ${words.length}`;
  if (shape === 'period 2' && isPeriod) return { said, kind, since, until };
  if (shape === 'table 1' && isKey(words[0])) return { said, kind, key: words[0], since: '', until: '~' };
  if (shape === 'table 3' && isKey(words[0]) && isPeriod) return { said, kind, key: words[0], since, until };
  const isDecision = (shape === 'decision 1' || (shape === 'decision 2' && isKey(words[1]))) && isGroupId(words[0]);
  need(isDecision, 'proof', 'expected a decision, a table or a period as scope');
  return { said, kind, groupId: words[0], key: words[1] ?? null };
}

const SCOPES = { decision: checkDecision, table: checkTable, period: checkPeriod };

function checkTable(scope, entries) {
  for (const { index, event, recorded_at: time } of entries) {
    const isOwn = event.key === scope.key && scope.since <= time && time < scope.until;
    need(isOwn, 'proof', `an entry about ${event.key}, or of another time`, index);
  }
  return { complete: [], selected: ['the log may hold other entries about this, also of the same time'] };
}

async function checkDecision({ groupId, key }, entries) {
  const group = entries.filter((one) => one.group.id === groupId && (key === null || one.event.key === key));
  const decided = group.filter((one) => one.event.type === 'commit.decided');
  need(decided.length > 0, 'proof', `the decision ${groupId} is not among the entries`);
  const keys = new Set(decided.map((one) => one.event.key));
  const rules = entries.filter((one) => /^(access_rule|policy)\./.test(one.event.type));
  for (const one of entries.filter((each) => !rules.includes(each) && !group.includes(each))) {
    const { type, data } = one.event;
    const isOutcome = type === 'commit.settled' && data.decision === groupId && keys.has(one.event.key);
    need(isOutcome, 'proof', `a ${type} about ${one.event.key}: no outcome of the decision, and no rule`, one.index);
  }
  const complete = [];
  if (key === null) {
    const { of } = group[0].group;
    const isWhole = group.length === of && group.every((one, at) => one.group.position === at);
    need(isWhole, 'proof', `expected all ${of} entries of the decision's group, found ${group.length}`);
    complete.push(`the group of the decision: ${of} entries, no table of it was left out`);
  }
  if (rules.length > 0) {
    await checkRules(rules, decided);
    complete.push(`the rules in force when it was judged: ${rules.length}, they have the digest in the decision`);
  }
  return { complete, selected: ['the log may hold other outcomes of the decision'] };
}

async function checkRules(rules, decided) {
  const references = rules.map(({ index, event: { type, data } }) => {
    const isInForce = !type.endsWith('.retired') && typeof data.id === 'string' && Number.isInteger(data.version);
    need(isInForce, 'proof', `a ${type} puts no rule in force`, index);
    return [type.split('.')[0], data.id, data.version];
  });
  const order = (a, b) => Number(a > b) - Number(a < b);
  references.sort((a, b) => order(a[0], b[0]) || order(a[1], b[1]) || order(a[2], b[2]));
  const digest = hex(await sha256(utf8(canonical(references))));
  for (const { index, event } of decided) {
    need(event.data.policy_set === digest, 'proof', 'it was judged by other rules than these', index);
    const isOlder = Number.isInteger(event.data.as_of) && rules.at(-1).index <= event.data.as_of;
    need(isOlder, 'proof', 'a rule that is newer than the decision', index);
  }
}

function checkPeriod({ since, until }, entries, size) {
  const [first, last] = [entries[0].index, entries.at(-1).index];
  const gap = entries.find((one, at) => one.index !== first + at);
  need(gap === undefined, 'proof', 'an entry before this one was left out', gap?.index);
  const before = entries.filter((one) => one.recorded_at < since).length;
  const after = entries.filter((one) => one.recorded_at >= until).length;
  const isFirst = before === 1 || (before === 0 && first === 0);
  const isLast = after === 1 || (after === 0 && BigInt(last) === size - 1n);
  need(isFirst, 'proof', "expected one entry before the period, or the log's first", first);
  need(isLast, 'proof', "expected one entry after the period, or the log's last", last);
  const signed = after ? '' : `, as far as signed: the log had ${size} entries then, and may have grown since`;
  const inside = entries.length - before - after;
  return { complete: [`the period: all ${inside} entries that were recorded in it${signed}`], selected: [] };
}

// The anchor: the system log of the same installation records size and root of the others, and witnesses cosign it

const firstOrigin = (origin) => /^(.+\/(?:[0-9a-f]{32}|system))\/([2-9]|[1-9][0-9]{1,8})$/.exec(origin)?.[1] ?? origin;
const systemOf = (origin) => `${firstOrigin(origin).split('/').slice(0, -1).join('/')}/system`;
const quoted = (word) => encodeURIComponent(word).replace(/[!'()*]/g, (c) => `%${hex(utf8(c)).toUpperCase()}`);

async function checkAnchor(section, { origin, size, root }, keys) {
  const signed = await openCheckpoint(section.note, keys);
  const checked = await checkEntries(section, signed);
  await checkRoot(checked, section, signed);
  const [{ entry: { event, index }, parts }] = checked;
  const system = systemOf(origin);
  need(firstOrigin(signed.origin) === system, 'anchor', `expected the log ${system}, found ${signed.origin}`);
  const isAnchor = event.type === 'logs.anchored' && event.version === 1;
  need(isAnchor, 'anchor', `expected an anchor, found a ${event.type}`);
  const isThis =
    checked.length === 1 &&
    parts.length === 0 &&
    event.key === `log:${origin.split('/').map(quoted).join('/')}` &&
    canonical(event.data) === canonical({ origin, root: hex(root), size: Number(size) });
  need(isThis, 'anchor', `it is not one of ${origin} at the size ${size} with this root`, index);
  return index;
}

// The steps. Each returns its words; with `ok: null` if there was nothing that it could check.

const STEPS = {
  async browser() {
    const missing = await whatIsMissing();
    if (missing !== null) throw new CannotTell(missing);
    return { words: 'SHA-256 and Ed25519 are here, and work' };
  },

  async trust(seen) {
    seen.policy = seen.trust.policy === undefined ? null : await parsePolicy(seen.trust.policy);
    seen.keys = [...(await Promise.all((seen.trust.trustedKeys ?? []).map(parseKey))), ...(seen.policy?.logs ?? [])];
    const unknown = seen.keys.find((key) => key.type === ML_DSA_44);
    if (unknown) throw new CannotTell(`${unknown.id} is of ML-DSA-44, which is not checked here: leave it out`);
    if (seen.keys.length === 0) {
      throw new CannotTell('KEY NOT PINNED: name the key of the log, and take it from those who run the log');
    }
    return { words: `the keys of ${[...new Set(seen.keys.map((key) => key.name))].join(', ')}` };
  },

  async form(seen) {
    if (!same(seen.data.subarray(0, HEADER.length), HEADER)) throw new CannotTell('this is no evidence bundle');
    seen.bundle = parseBundle(seen.data);
    return { words: `a bundle of ${seen.data.length} bytes, about the ${seen.bundle.scope.said}` };
  },

  async signature(seen) {
    seen.checkpoint = await openCheckpoint(seen.bundle.section.note, seen.keys);
    return { words: `${seen.checkpoint.origin} has signed its first ${seen.checkpoint.size} entries` };
  },

  async entries(seen) {
    seen.checked = await checkEntries(seen.bundle.section, seen.checkpoint);
    const parts = seen.checked.flatMap((one) => one.parts).length;
    const entries = seen.checked.length;
    return { words: `entries: ${entries}, canonical and in order; disclosed parts: ${parts}, as committed to` };
  },

  async inclusion(seen) {
    await checkRoot(seen.checked, seen.bundle.section, seen.checkpoint);
    return { words: `the entries are in the tree with the signed root ${hex(seen.checkpoint.root)}` };
  },

  async scope(seen) {
    const entries = seen.checked.map((one) => one.entry);
    seen.coverage = await SCOPES[seen.bundle.scope.kind](seen.bundle.scope, entries, seen.checkpoint.size);
    const { complete, selected } = seen.coverage;
    const said = [...complete.map((one) => `COMPLETE: ${one}`), ...selected.map((one) => `SELECTION: ${one}`)];
    return { words: said.join('. ') };
  },

  async anchor(seen) {
    const system = systemOf(seen.checkpoint.origin);
    if (seen.bundle.anchor === null) return { ok: null, words: 'the bundle has none' };
    if (!seen.keys.some((key) => firstOrigin(key.name) === system)) {
      seen.unchecked.push(`the anchor in the log ${system}: name its key, too`);
      return { ok: null, words: 'NOT CHECKED: the key of the system log was not named' };
    }
    const index = await checkAnchor(seen.bundle.anchor, seen.checkpoint, seen.keys);
    seen.notes.unshift(seen.bundle.anchor.note);
    return { words: `ANCHORED: entry ${index} of ${system} records this checkpoint` };
  },

  async witnesses(seen) {
    seen.notes.push(seen.bundle.section.note);
    if (seen.policy === null) return { ok: null, words: 'NOT WITNESSED: no policy was named' };
    if (seen.policy.quorum === 'none') return { ok: null, words: 'NOT WITNESSED: the policy asks for no witness' };
    for (const note of seen.notes) { // a bad cosignature is a fault of its own
      const times = await openCosignatures(note, seen.policy);
      if (times === null) continue;
      seen.witnessed = true;
      const last = new Date(1000 * Math.max(...[...times.values()].map(Number)));
      return { words: `WITNESSED: not later than ${last.toISOString()}, by ${[...times.keys()].join(', ')}` };
    }
    throw new Broken('witness', `too few of the witnesses have cosigned for the quorum ${seen.policy.quorum}`);
  },
};

/** Return what was there and not checked, in words. */
function nameUnchecked({ keys, policy, bundle, notes, unchecked }) {
  const witnesses = policy?.witnesses ?? [];
  const known = new Set([...keys, ...witnesses.map((witness) => witness.key)].map((key) => key.id));
  const lines = notes.flatMap((note) => parseNote(note).signatures).filter((line) => !known.has(line.id));
  const stamps = [bundle.section, bundle.anchor].filter((section) => section?.stamp);
  return [
    ...unchecked,
    ...lines.map((line) => `a signature by ${line.name}`),
    ...witnesses.filter(({ key }) => key.type === ML_DSA_44).map(({ name }) => `cosignatures of ${name}: ML-DSA-44`),
    ...stamps.map(() => 'a time stamp: `lakeproof ledger check --tsa-root` checks it'),
  ];
}

/**
 * Check a bundle (a Uint8Array, an ArrayBuffer or a string) against what the caller trusts, and return what it proves.
 *
 * `trust` has `trustedKeys`, verifier keys of the log and perhaps of the system log, and perhaps `policy`, the text of
 * a witness policy, whose logs count as trusted keys. `verdict` is `proven`, `broken` or `cannot tell`; `ok` says
 * whether it is the first. Each of `steps` has `name`, `ok` and `words`; `ok` is null if there was nothing to check,
 * or, without words, if the step was not reached.
 */
export async function verifyBundle(data, trust = {}) {
  const bytes = typeof data === 'string' ? utf8(data) : new Uint8Array(data);
  const seen = { data: bytes, trust, notes: [], unchecked: [], witnessed: false };
  const steps = Object.keys(STEPS).map((name) => ({ name, ok: null, words: '' }));
  for (const step of steps) {
    try {
      Object.assign(step, { ok: true }, await STEPS[step.name](seen));
    } catch (error) { // whatever it is, nothing is proven
      Object.assign(step, { ok: false, words: error.message });
      const isBroken = error instanceof Broken && step.name !== 'trust';
      const { fault, index } = isBroken ? error : { fault: null, index: null };
      return { ok: false, verdict: isBroken ? 'broken' : 'cannot tell', fault, index, steps };
    }
  }
  const { origin, size, root } = seen.checkpoint;
  return {
    ok: true,
    verdict: 'proven',
    fault: null,
    index: null,
    steps,
    origin,
    size,
    root: hex(root),
    scope: seen.bundle.scope.said,
    ...seen.coverage,
    witnessed: seen.witnessed,
    entries: seen.checked.map(({ entry, parts }) => ({ ...entry, parts })),
    unchecked: nameUnchecked(seen),
  };
}
