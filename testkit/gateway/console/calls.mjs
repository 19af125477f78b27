// SPDX-License-Identifier: Apache-2.0
// Calls functions of the modules of the console: one call a line on stdin, one answer a line on stdout, both JSON.
// Bytes are {"hex": "…"} and BigInts {"int": "…"}, there and back.

import { createInterface } from 'node:readline';

import * as evidence from '../../../gateway/console/static/evidence.mjs';
import * as proof from '../../../gateway/console/static/proof.mjs';

const functions = { ...proof, ...evidence };

function revive(_, value) {
  if (typeof value?.hex === 'string') return new Uint8Array(Buffer.from(value.hex, 'hex'));
  return typeof value?.int === 'string' ? BigInt(value.int) : value;
}

function written(_, value) {
  if (typeof value === 'bigint') return { int: String(value) };
  if (value instanceof Map) return [...value];
  return value instanceof Uint8Array ? { hex: Buffer.from(value).toString('hex') } : value;
}

for await (const line of createInterface({ input: process.stdin })) {
  const { name, args } = JSON.parse(line, revive);
  let answer;
  try {
    answer = { returned: (await functions[name](...args)) ?? null };
  } catch (error) {
    answer = { thrown: error.constructor.name, message: error.message, fault: error.fault ?? null, index: error.index ?? null };
  }
  console.log(JSON.stringify(answer, written));
}
