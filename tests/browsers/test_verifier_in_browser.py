# SPDX-License-Identifier: Apache-2.0
"""The verifier as an auditor uses it: a file in a real browser, without a network, and files chosen in its form."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, BrowserContext, FilePayload, Page
from playwright.sync_api import TimeoutError as NothingCameError

from gateway.console.verifier_page import verifier_page
from ledger.proving.evidence.bundle import Bundle, format_bundle
from ledger.proving.evidence.scope import TableScope
from testkit.gateway.console.chromium import PLAIN_HOST, chromium
from testkit.ledger.evidence_logs import group_of, rule, section_of, story_rows
from testkit.ledger.logs import KEY, SIGNER
from testkit.ledger.tampering.evidence import CLASSES, Case, Honest, make_honest

PAGE: Final = verifier_page("9.9.9")
TITLES: Final = dict(re.findall(r"^  (\w+): '(.+)',$", PAGE.decode().partition("const TITLES")[2], re.MULTILINE))
"""What the page calls each step."""
STEPS: Final = 9
CONTRAST_MIN: Final = 4.5
"""Of text (WCAG 2.2, success criterion 1.4.3)."""
MODES: Final[tuple[Mapping[str, Any], ...]] = (
    {"color_scheme": "light"},
    {"color_scheme": "dark"},
    {"color_scheme": "dark", "forced_colors": "active"},
)
CONTRASTS: Final = """() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const channels = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const luminance = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => (v / 255 <= 0.04045 ? v / 3294.6 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const groundOf = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const ground = channels(getComputedStyle(one).backgroundColor);
      if (ground[3] === 255) return ground;
    }
    return channels('Canvas');
  };
  const hasText = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  return [...document.querySelectorAll('main *')].filter((e) => hasText(e) && e.checkVisibility()).map((element) => {
    const [a, b] = [channels(getComputedStyle(element).color), groundOf(element)].map(luminance);
    return [element.textContent.slice(0, 60), (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)];
  });
}"""


@dataclass(frozen=True, slots=True)
class Verifier:
    """The page in a tab of its own."""

    page: Page

    def check(self, case: Case) -> str:
        """Choose the files of a case, check them, and return the verdict."""
        self.page.set_input_files("#bundle", payload("evidence", case.data))
        self.page.fill("#keys", "\n".join(case.keys))
        policy = [] if case.policy is None else [payload("policy", case.policy.encode())]
        self.page.set_input_files("#policy", policy)
        self.page.click("#check")
        return self.verdict()

    def verdict(self) -> str:
        """Wait for the verdict, and return its first words."""
        self.page.locator("#result").wait_for(state="visible")
        return self.page.inner_text("#verdict strong")

    def steps(self, kind: str) -> list[str]:
        """Return what is said of the steps that passed, failed, or were open."""
        return self.page.locator(f"#steps li.{kind}").all_inner_texts()


def payload(name: str, data: bytes) -> FilePayload:
    return {"name": name, "mimeType": "application/octet-stream", "buffer": data}


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Honest:
    return make_honest(tmp_path_factory.mktemp("evidence"))


@pytest.fixture(scope="module")
def browser(honest: Honest) -> Iterator[Browser]:
    """One browser for all; the evidence is made before, because no loop of asyncio runs beside Playwright's."""
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page as a file, as `lakeproof ledger verifier` writes it."""
    file = tmp_path_factory.mktemp("page") / "verifier.html"
    file.write_bytes(PAGE)
    return file.as_uri()


@pytest.fixture(scope="module")
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(offline=True)
    yield context
    context.close()


@pytest.fixture(scope="module")
def verifier(context: BrowserContext, address: str) -> Iterator[Verifier]:
    """The page in a tab that many tests use, one after the other, as people do."""
    page = context.new_page()
    page.goto(address)
    yield Verifier(page)
    page.close()


@pytest.fixture
def fresh(context: BrowserContext) -> Iterator[Page]:
    page = context.new_page()
    yield page
    page.close()


@pytest.fixture(scope="module")
def plain_http() -> Iterator[str]:
    """The page over http, from a host that is not localhost."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(PAGE)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://{PLAIN_HOST}:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


def test_an_honest_bundle_is_green_in_a_file_without_a_network(fresh: Page, address: str, honest: Honest) -> None:
    asked: list[str] = []
    fresh.on("request", lambda request: asked.append(request.url))
    fresh.goto(address)
    verifier = Verifier(fresh)
    assert verifier.check(honest.case()) == "Proven"
    assert len(verifier.steps("passed")) == STEPS
    assert (verifier.steps("failed"), verifier.steps("open")) == ([], [])
    entries = fresh.locator("#entries summary").all_inner_texts()
    assert [int(entry.partition(",")[0]) for entry in entries] == [1, 3, 7, 8, 9, 10]
    fresh.locator("#entries details").nth(2).locator("summary").click()
    assert "ada@acme.example" in fresh.locator("#entries details").nth(2).inner_text()
    assert not fresh.locator("#unchecked-title").is_visible()
    assert asked == [address]


@pytest.mark.parametrize("name", CLASSES)
def test_a_tampered_bundle_turns_red_at_the_right_step_for_the_right_reason(
    verifier: Verifier, honest: Honest, name: str
) -> None:
    case = CLASSES[name](honest)
    assert verifier.check(case) == ("Could not tell" if case.fault is None else "Broken")
    steps = verifier.page.locator("#steps li")
    kinds = [steps.nth(number).get_attribute("class") for number in range(STEPS)]
    place = kinds.index("failed")
    assert kinds[place + 1 :] == ["open"] * (STEPS - place - 1)
    assert steps.nth(place).locator("strong").inner_text() == TITLES[case.step or ""]
    assert "✗ failed" in steps.nth(place).inner_text()
    if case.fault is not None:
        where = "" if case.index is None else f" at index {case.index}"
        assert steps.nth(place).locator("p").inner_text().startswith(f"{case.fault} fault{where}: ")
    assert verifier.page.locator("#entries details").count() == 0
    assert verifier.page.get_attribute("#verdict", "class") == "failed"


def test_after_a_red_bundle_the_honest_one_is_green_again_and_a_new_file_takes_the_verdict_away(
    verifier: Verifier, honest: Honest
) -> None:
    assert verifier.check(CLASSES["another payload"](honest)) == "Broken"
    assert verifier.check(honest.case()) == "Proven"
    verifier.page.set_input_files("#bundle", payload("another", b"another"))
    assert not verifier.page.locator("#result").is_visible()


def test_a_verdict_is_not_shown_if_something_else_was_chosen_meanwhile(verifier: Verifier, honest: Honest) -> None:
    assert verifier.check(honest.case()) == "Proven"
    choose_while_checking = """() => {
      document.getElementById('check').click();
      const keys = document.getElementById('keys');
      keys.value = '';
      keys.dispatchEvent(new Event('input', { bubbles: true }));
      return document.getElementById('check').disabled;
    }"""
    assert verifier.page.evaluate(choose_while_checking)
    verifier.page.locator("#check:enabled").wait_for()
    assert not verifier.page.locator("#result").is_visible()


def test_without_a_policy_it_says_that_nobody_else_confirms_the_log(verifier: Verifier, honest: Honest) -> None:
    assert verifier.check(replace(honest.case(), policy=None)) == "Proven"
    assert "Nobody but the installation itself" in verifier.page.inner_text("#verdict")
    (open_step,) = verifier.steps("open")
    assert "NOT WITNESSED" in open_step
    assert len(verifier.page.locator("#unchecked li").all_inner_texts()) == 2


def test_the_whole_check_is_possible_by_keyboard(fresh: Page, address: str, honest: Honest, tmp_path: Path) -> None:
    case = honest.case()
    files = {"bundle": case.data, "policy": (case.policy or "").encode()}
    files |= {f"{number}.vkey": key.encode() for number, key in enumerate(case.keys)}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    fresh.goto(address)
    keys = [tmp_path / f"{number}.vkey" for number in range(len(case.keys))]
    for wanted, chosen in (("bundle", tmp_path / "bundle"), ("key-files", keys), ("policy", tmp_path / "policy")):
        reach(fresh, wanted)
        choose(fresh, chosen)
    reach(fresh, "check")
    fresh.keyboard.press("Enter")
    assert Verifier(fresh).verdict() == "Proven"
    assert fresh.evaluate("document.activeElement.id") == "verdict"
    fresh.keyboard.press("Tab")
    fresh.keyboard.press("Enter")
    assert fresh.locator("#entries details").first.get_attribute("open") is not None


def reach(page: Page, wanted: str) -> None:
    """Go on by Tab to an element, whose focus is visible."""
    for _ in range(10):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == wanted:
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
            return
    raise AssertionError(f"no way to {wanted}")


def choose(page: Page, chosen: Path | list[Path]) -> None:
    """Open the dialog for files by key, and choose some. Chromium now and then opens none; then it is pressed again."""
    for timeout_ms in (5_000, 30_000):
        with suppress(NothingCameError):
            with page.expect_file_chooser(timeout=timeout_ms) as chooser:
                page.keyboard.press("Space")
            chooser.value.set_files(chosen)
            return
    raise AssertionError("no dialog was opened")


def test_over_plain_http_nothing_is_green_and_it_says_what_to_do(
    browser: Browser, plain_http: str, honest: Honest
) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(plain_http)
        assert page.evaluate("[isSecureContext, crypto.subtle]") == [False, None]
        verifier = Verifier(page)
        assert verifier.check(honest.case()) == "Could not tell"
        assert verifier.steps("passed") == []
        assert "over https" in verifier.steps("failed")[0]


@pytest.mark.parametrize(
    "replaced",
    [
        "importKey = () => Promise.reject(new DOMException('Unrecognized name.', 'NotSupportedError'))",
        "verify = () => Promise.resolve(true)",
        "verify = () => Promise.resolve(false)",
    ],
)
def test_a_browser_without_ed25519_or_with_a_false_one_turns_nothing_green(
    browser: Browser, address: str, honest: Honest, replaced: str
) -> None:
    with browser.new_context() as context:
        context.add_init_script(f"SubtleCrypto.prototype.{replaced}")
        page = context.new_page()
        page.goto(address)
        verifier = Verifier(page)
        assert verifier.check(honest.case()) == "Could not tell"
        assert verifier.steps("passed") == []
        assert "does not verify Ed25519" in verifier.steps("failed")[0]


def test_what_an_entry_says_is_text_and_never_markup(verifier: Verifier) -> None:
    hostile = "<img/src=x/onerror=document.title='owned'><script>document.title='owned'</script>"
    rows = story_rows([group_of(0, rule("policy.created", hostile, 1)), group_of(1, rule("policy.created", "x", 1))])
    scope = TableScope(key=f"policy:{hostile}")
    data = format_bundle(Bundle(scope=scope, section=section_of(rows, [0], SIGNER)))
    assert verifier.check(Case(data=data, keys=[KEY.format()], policy=None)) == "Proven"
    assert hostile in verifier.page.inner_text("#entries summary")
    assert verifier.page.locator("main img, main script").count() == 0
    assert verifier.page.title() == "Lakeproof verifier"
    assert verifier.check(Case(data=data, keys=["<b>x</b>+\u202e"], policy=None)) == "Could not tell"
    assert "\u202e" not in verifier.page.inner_text("#steps")


def test_the_page_connects_to_nothing_and_runs_its_own_script_alone(
    browser: Browser, address: str, tmp_path: Path
) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(address)
        refused = """async () => {
          const violated = new Promise((done) => addEventListener('securitypolicyviolation', done));
          await fetch('http://127.0.0.1:9/').catch(() => null);
          return (await violated).effectiveDirective;
        }"""
        assert page.evaluate(refused) == "connect-src"
        page.evaluate(
            "() => document.body.insertAdjacentHTML('beforeend', '<i id=x onclick=\"document.title=1\">x</i>')"
        )
        page.click("#x")
        assert page.title() == "Lakeproof verifier"
        assert page.locator("#form").is_visible()
        changed = tmp_path / "changed.html"
        changed.write_bytes(PAGE.replace(b"proven: ['Proven'", b"broken: ['Proven'"))
        page.goto(changed.as_uri())
        assert not page.locator("#form").is_visible()


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: "-".join(mode.values()))
def test_every_text_can_be_read_in_light_dark_and_forced_colours(
    context: BrowserContext, fresh: Page, address: str, honest: Honest, mode: Mapping[str, Any]
) -> None:
    fresh.emulate_media(**mode)
    fresh.goto(address)
    for case in (honest.case(), replace(honest.case(), policy=None), CLASSES["another payload"](honest)):
        Verifier(fresh).check(case)
        found = fresh.evaluate(CONTRASTS)
        assert len(found) > 25
        assert {text: ratio for text, ratio in found if ratio < CONTRAST_MIN} == {}


def test_on_a_narrow_screen_nothing_is_cut_off(fresh: Page, address: str, honest: Honest) -> None:
    fresh.set_viewport_size({"width": 360, "height": 640})
    fresh.goto(address)
    Verifier(fresh).check(honest.case())
    for details in fresh.locator("#entries summary").all():
        details.click()
    assert fresh.evaluate("document.documentElement.scrollWidth") <= 360
