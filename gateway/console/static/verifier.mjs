// SPDX-License-Identifier: Apache-2.0
/**
 * The page of the verifier: reads the files that its user chooses, and shows each step of the check with its reason.
 *
 * Nothing from a bundle becomes markup: all of it is set as text. The page's content policy lets it connect to nothing.
 */

import { verifyBundle } from './evidence.mjs';

const TITLES = {
  browser: 'This browser can check',
  trust: 'The keys that you trust',
  form: 'The form of the file',
  signature: 'The signature of the checkpoint',
  entries: 'The entries and their parts',
  inclusion: 'The proof that they are in the log',
  scope: 'What the bundle says it is about',
  anchor: 'The record in the system log',
  witnesses: 'The witnesses',
};
const MARKS = new Map([[true, '✓ passed'], [false, '✗ failed'], [null, '– not checked']]);
const VERDICTS = {
  proven: ['Proven', 'Every step that could be taken passed.'],
  broken: ['Broken', 'A step failed, for the reason below. Do not rely on this evidence.'],
  'cannot tell': ['Could not tell', 'Nothing is proven, and nothing is refuted.'],
};
const SHOWN_MAX = 100; // entries on the page; the verdict is about all of them
const PAYLOAD_MAX = 2_000; // characters shown of a disclosed part
const [BUNDLE_SIZE_MAX, TRUST_SIZE_MAX] = [2 ** 26, 2_000_000]; // bytes; of what is larger, enough is read to refuse it

const part = (id) => document.getElementById(id);

function element(name, words, className = '') {
  const made = document.createElement(name);
  made.textContent = words;
  made.className = className;
  return made;
}

/** Show what a character would otherwise do to the line: controls, and those that change the direction of text. */
const visible = (words) =>
  words.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);

async function contentOf(input) {
  const files = await Promise.all([...input.files].map((file) => file.slice(0, TRUST_SIZE_MAX + 1).text()));
  return files.join('\n');
}

/** Return what the user trusts: keys, a line each, in files and in the field; and the policy. */
async function readTrust() {
  const lines = `${await contentOf(part('key-files'))}\n${part('keys').value}`.split('\n');
  const trustedKeys = lines.map((line) => line.trim()).filter((line) => line !== '');
  const hasPolicy = part('policy').files.length > 0; // an empty file is no policy, and is refused
  return { trustedKeys, policy: hasPolicy ? await contentOf(part('policy')) : undefined };
}

function showSteps(steps) {
  const shown = steps.map(({ name, ok, words }) => {
    const item = document.createElement('li');
    item.className = { true: 'passed', false: 'failed', null: 'open' }[ok];
    item.append(element('strong', TITLES[name]), element('span', words ? MARKS.get(ok) : '– not reached', 'mark'));
    if (words) item.append(element('p', visible(words)));
    return item;
  });
  part('steps').replaceChildren(...shown);
}

function payloadOf({ name, payload }) {
  const text = new TextDecoder().decode(payload);
  const shown = text.length > PAYLOAD_MAX ? `${text.slice(0, PAYLOAD_MAX)}… (${payload.length} bytes)` : text;
  return `${name}: ${shown}`;
}

function showEntries(entries = []) {
  const shown = entries.slice(0, SHOWN_MAX).map(({ index, event, recorded_at: time, parts }) => {
    const details = document.createElement('details');
    const content = [JSON.stringify(event, null, 2), ...parts.map(payloadOf)];
    details.append(element('summary', visible(`${index}, recorded ${time}: ${event.type} about ${event.key}`)));
    details.append(...content.map((words) => element('pre', words.split('\n').map(visible).join('\n'))));
    return details;
  });
  const more = entries.length - shown.length;
  if (more > 0) shown.push(element('p', `and ${more} more, checked as these were`));
  part('entries').replaceChildren(...shown);
  part('entries-title').hidden = shown.length === 0;
}

function show(result) {
  const [title, words] = VERDICTS[result.verdict];
  const isWitnessed = result.witnessed ? '' : ' Nobody but the installation itself confirms the log.';
  const verdict = part('verdict');
  verdict.className = result.ok ? 'passed' : 'failed';
  verdict.replaceChildren(element('strong', title), element('p', result.ok ? words + isWitnessed : words));
  showSteps(result.steps);
  showEntries(result.entries);
  part('unchecked').replaceChildren(...(result.unchecked ?? []).map((said) => element('li', visible(said))));
  part('unchecked-title').hidden = !part('unchecked').hasChildNodes();
  part('result').hidden = false;
  verdict.focus();
}

async function resultOf(file) {
  try {
    const data = await file.slice(0, BUNDLE_SIZE_MAX + 1).arrayBuffer();
    return await verifyBundle(data, await readTrust());
  } catch (error) { // a file that cannot be read any more, say
    return { ok: false, verdict: 'cannot tell', steps: [{ name: 'form', ok: false, words: error.message }] };
  }
}

let choices = 0; // how often something was chosen: a verdict is shown only while it is about what is chosen now

async function check() {
  const [button, checked] = [part('check'), choices];
  Object.assign(button, { disabled: true, textContent: 'Checking…' }); // ten thousand entries take seconds
  const result = await resultOf(part('bundle').files[0]);
  Object.assign(button, { disabled: false, textContent: 'Check' });
  if (checked === choices) show(result);
}

part('form').addEventListener('submit', (event) => {
  event.preventDefault();
  check();
});
part('form').addEventListener('input', () => {
  choices += 1;
  part('result').hidden = true;
});
part('form').hidden = false;
