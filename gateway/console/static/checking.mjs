// SPDX-License-Identifier: Apache-2.0
/**
 * The proof of an entry, checked on its page by the visitor's own browser.
 *
 * What is checked are the bytes that the page shows. The browser keeps, for each log, the keys that it trusts and the
 * checkpoint that it has seen last: another key, a log that has become shorter, or one that says something else about
 * what was seen, is red. The first keys come from the gateway, so the page shows them, to be compared with those that
 * an auditor has. The gateway also serves this script: an auditor keeps the verifier as a file.
 */

import {
  Broken, CannotTell, fromBase64, fromDecimal, fromUtf8, hex, leafHash, need, openCheckpoint, parseKey, utf8,
  verifyConsistency, verifyInclusion, whatIsMissing,
} from './proof.mjs';

const HEADER = 'c2sp.org/tlog-proof@v1';
const place = document.querySelector('#checking');
const button = document.querySelector('#check');
const forget = document.querySelector('#forget');
const steps = document.querySelector('#steps');
const { index, origin } = place.dataset;
const memory = `lakeproof log ${origin}`;

function tell(words, kind) {
  const line = document.createElement('li');
  line.className = kind;
  line.textContent = words;
  steps.append(line);
}

/** Return what this browser trusts of the log: {keys, size, root}, or null at the first visit. */
function remembered() {
  const kept = localStorage.getItem(memory);
  return kept === null ? null : JSON.parse(kept);
}

/** Return entry, index, hashes and checkpoint of a proof file (C2SP tlog-proof; its `extra` line is the entry). */
function parseProof(file) {
  const [head, note] = splitAt(fromUtf8(file, 'proof'), '\n\n');
  const lines = head.split('\n');
  need(lines[1]?.startsWith('extra '), 'proof', 'expected the entry in the proof');
  const [, extra] = lines.splice(1, 1)[0].split(' ', 2);
  need(lines[0] === HEADER && lines[1]?.startsWith('index '), 'proof', `expected a file of ${HEADER}`);
  return {
    entry: fromBase64(extra, 'proof'),
    index: fromDecimal(lines[1].slice('index '.length), 'proof'),
    hashes: lines.slice(2).map((line) => fromBase64(line, 'proof')),
    note: utf8(note),
  };
}

function splitAt(text, border) {
  const at = text.indexOf(border);
  need(at >= 0, 'proof', 'expected a checkpoint behind the hashes');
  return [text.slice(0, at), text.slice(at + border.length)];
}

async function ask(seen) {
  const answer = await fetch(`/console/log/${index}/check?seen=${seen}`, { redirect: 'error' }).catch(() => null);
  if (!answer?.ok) throw new CannotTell('the gateway gave no proof: you may be logged out, or nothing is signed yet');
  return answer.json();
}

async function check() {
  const missing = await whatIsMissing();
  if (missing !== null) throw new CannotTell(missing);
  const known = remembered();
  const given = await ask(known?.size ?? 0);
  const vkeys = known?.keys ?? given.keys;
  const keys = await Promise.all(vkeys.map(parseKey));
  const proof = parseProof(fromBase64(given.proof, 'proof'));
  need(proof.index === BigInt(index), 'proof', `expected the proof of entry ${index}, found that of ${proof.index}`);
  const checkpoint = await openCheckpoint(proof.note, keys);
  need(checkpoint.origin === origin, 'checkpoint', `expected one of ${origin}, found one of ${checkpoint.origin}`);
  tell(`Signed: a checkpoint of ${checkpoint.size} entries, by ${vkeys.join(', ')}`, 'good');
  if (known === null) {
    tell('The key is the one that the gateway names, seen here for the first time: compare it with the one that you '
      + 'were given. From now on this browser takes no other.', 'open');
  }
  const stored = utf8(document.querySelector('#stored').textContent);
  need(hex(stored) === hex(proof.entry), 'proof', 'the proof is of other bytes than this page shows');
  const leaf = await leafHash(stored);
  await verifyInclusion({ index, size: checkpoint.size, leaf, proof: proof.hashes, root: checkpoint.root });
  tell(`Included: the bytes on this page are entry ${index} of that tree (leaf ${hex(leaf)})`, 'good');
  if (known !== null) {
    const size = fromDecimal(known.size, 'checkpoint');
    need(size <= checkpoint.size, 'checkpoint', `this browser has seen ${size} entries, and the log now has fewer`);
    await verifyConsistency({
      size1: size,
      size2: checkpoint.size,
      root1: fromBase64(known.root, 'checkpoint'),
      root2: checkpoint.root,
      proof: given.growth.map((hash) => fromBase64(hash, 'proof')),
    });
    tell(`Grown: nothing of the ${size} entries that this browser saw last was changed or removed`, 'good');
  }
  const root = btoa(String.fromCharCode(...checkpoint.root));
  localStorage.setItem(memory, JSON.stringify({ keys: vkeys, size: String(checkpoint.size), root }));
}

button.addEventListener('click', async () => {
  steps.replaceChildren();
  button.disabled = true;
  try {
    await check();
    tell('All of it holds.', 'verdict good');
  } catch (error) {
    if (error instanceof CannotTell) {
      tell(`This cannot be checked here: ${error.message}`, 'verdict open');
    } else {
      const words = error instanceof Broken ? error.message : `the answer is no proof (${error.message})`;
      tell(`Broken: ${words}`, 'verdict bad');
    }
  } finally {
    button.disabled = false;
    forget.hidden = remembered() === null;
  }
});
forget.addEventListener('click', () => {
  localStorage.removeItem(memory);
  steps.replaceChildren();
  forget.hidden = true;
});
button.hidden = false;
forget.hidden = remembered() === null;
