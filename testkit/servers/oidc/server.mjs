// SPDX-License-Identifier: Apache-2.0
// A certified OpenID provider for a test, on a free port of loopback: prints its URL, and ends with its standard input.
// Its access tokens for the resource named by the first argument are JSON Web Tokens of the algorithm that the client
// is named after, with the groups of the second argument. People log in, with any password, to the client `console`,
// whose browsers return to the third argument; it is given refresh tokens, each of which counts once. A line of standard
// input is JSON: `groups` that tokens have from then on, `lifetime_s` of access tokens, `gone`: whose account there is no
// more. It is answered with a line.
import { generateKeyPairSync } from "node:crypto";
import { createServer } from "node:http";
import { createInterface } from "node:readline";
import { Provider } from "oidc-provider";

const [resource, groups, redirect] = process.argv.slice(2);
const now = { groups: groups.split(","), lifetime_s: 600, gone: null };
const kinds = {
  RS256: generateKeyPairSync("rsa", { modulusLength: 2048 }),
  ES256: generateKeyPairSync("ec", { namedCurve: "P-256" }),
  EdDSA: generateKeyPairSync("ed25519"),
};
const keys = Object.entries(kinds).map(([alg, { privateKey }]) => ({
  ...privateKey.export({ format: "jwk" }), alg, use: "sig", kid: `key-${alg}`,
}));
const clients = Object.keys(kinds).map((alg) => ({
  client_id: `client-${alg}`, client_secret: "secret", grant_types: ["client_credentials"],
  redirect_uris: [], response_types: [],
}));
if (redirect) {
  clients.push({
    client_id: "console", redirect_uris: [redirect], token_endpoint_auth_method: "none", id_token_signed_response_alg: "ES256",
    grant_types: ["authorization_code", "refresh_token"],
  });
}

const server = createServer();
server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients,
    jwks: { keys },
    features: {
      devInteractions: { enabled: Boolean(redirect) },
      clientCredentials: { enabled: true },
      revocation: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: (_ctx, _resource, client) => ({
          scope: "catalog", audience: resource, accessTokenFormat: "jwt", accessTokenTTL: now.lifetime_s,
          jwt: { sign: { alg: client.clientId === "console" ? "ES256" : client.clientId.replace("client-", "") } },
        }),
        useGrantedResource: () => true,
      },
    },
    findAccount: (_ctx, id) => (id === now.gone ? undefined : { accountId: id, claims: () => ({ sub: id }) }),
    rotateRefreshToken: true,
    pkce: { required: () => true },
    cookies: { keys: ["of a test"] },
    extraTokenClaims: () => ({ groups: now.groups }),
  });
  server.on("request", provider.callback());
  console.log(issuer);
});
const lines = createInterface({ input: process.stdin });
lines.on("line", (line) => {
  Object.assign(now, JSON.parse(line));
  console.log("so it is");
});
lines.on("close", () => process.exit(0));
