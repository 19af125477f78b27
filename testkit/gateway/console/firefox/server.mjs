// SPDX-License-Identifier: Apache-2.0
// The Firefox that is installed, driven over WebDriver BiDi: a line of JSON in, {do, ...}, and a line out, {returned} or
// {thrown}. The first argument is the program. Ends, with the browser, when its standard input does.
import { createInterface } from "node:readline";
import puppeteer from "puppeteer-core";

const browser = await puppeteer.launch({
  browser: "firefox", executablePath: process.argv[2], headless: true,
  extraPrefsFirefox: { "browser.newtabpage.enabled": false, "network.captive-portal-service.enabled": false },
});
let context = await browser.createBrowserContext();
let page = await context.newPage();
page.setDefaultTimeout(60_000);

const actions = {
  version: () => browser.version(),
  goto: async ({ url }) => { await page.goto(url); },
  type: async ({ selector, text }) => { await page.locator(selector).fill(text); },
  click: async ({ selector }) => { await page.locator(selector).click(); },
  follow: async ({ selector }) => { await Promise.all([page.waitForNavigation(), page.locator(selector).click()]); },
  wait: async ({ selector }) => { await page.waitForSelector(selector); },
  texts: ({ selector }) => page.$$eval(selector, (all) => all.map((each) => each.textContent)),
  evaluate: ({ script }) => page.evaluate(script),
  url: () => page.url(),
  fresh: async () => {
    await context.close();
    context = await browser.createBrowserContext();
    page = await context.newPage();
    page.setDefaultTimeout(60_000);
  },
};

console.log(JSON.stringify({ returned: await browser.version() }));
for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  try {
    console.log(JSON.stringify({ returned: (await actions[asked.do](asked)) ?? null }));
  } catch (error) {
    console.log(JSON.stringify({ thrown: String(error) }));
  }
}
await browser.close();
