// SPDX-License-Identifier: Apache-2.0
// A certified OpenID provider for a test, on a free port of loopback: prints its URL, and ends with its standard input.
// Its access tokens for the resource named by the first argument are JSON Web Tokens of the algorithm that the client
// is named after, with the groups of the second argument. People log in, with any password, to the client `console`,
// whose browsers return to the third argument.
import { generateKeyPairSync } from "node:crypto";
import { createServer } from "node:http";
import { Provider } from "oidc-provider";

const [resource, groups, redirect] = process.argv.slice(2);
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
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: (_ctx, _resource, client) => ({
          scope: "catalog", audience: resource, accessTokenFormat: "jwt", accessTokenTTL: 600,
          jwt: { sign: { alg: client.clientId === "console" ? "ES256" : client.clientId.replace("client-", "") } },
        }),
        useGrantedResource: () => true,
      },
    },
    findAccount: (_ctx, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
    pkce: { required: () => true },
    cookies: { keys: ["of a test"] },
    extraTokenClaims: () => ({ groups: groups.split(",") }),
  });
  server.on("request", provider.callback());
  console.log(issuer);
});
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
