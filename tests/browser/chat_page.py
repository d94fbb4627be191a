"""Chromium, and the chat page in it as a visitor sees it."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.expected_conditions import alert_is_present
from selenium.webdriver.support.ui import WebDriverWait

WAIT_SECONDS = 120.0

CONTRAST = """
const [ink, ground] = [arguments[0], arguments[1]].map((colour) => {
  const parts = colour.match(/[\\d.]+/g).slice(0, 3).map((part) => {
    const share = part / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
});
return (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05);
"""
RECORD = """window.sent = [];
const real = window.fetch;
window.fetch = (url, options) => {
  if (url.endsWith('completions')) window.sent.push(JSON.parse(options.body).messages);
  return real(url, options);
};"""

QUIET = (
    *("--headless=new", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage"),
    *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--disable-default-apps"),
)


def program(*names: str) -> str:
    """The path of the first program that is installed; fails with the fix where none is."""
    found = next((path for name in names if (path := shutil.which(name))), None)
    assert found, f"{names[0]} is not installed; `make test-browser` installs it"
    return found


class Browser:
    """A headless Chromium with a profile of its own in `folder`."""

    def __init__(self, folder: Path) -> None:
        options = ChromeOptions()
        options.binary_location = program("chromium", "chromium-browser", "google-chrome")
        for flag in QUIET:
            options.add_argument(flag)
        if os.geteuid() == 0:
            options.add_argument("--no-sandbox")
        options.add_argument(f"--user-data-dir={folder / 'profile'}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        # the path keeps Selenium from looking for a driver on the network
        self.driver = Chrome(options=options, service=Service(program("chromedriver")))

    def open(self, address: str, width: int = 1000, height: int = 760) -> "ChatPage":
        """The page at `address` in a viewport of so many CSS pixels, once it has its methods."""
        page = self.begin(address, width, height)
        page.until(lambda: page.all("#model option"))
        return page

    def begin(self, address: str, width: int = 1000, height: int = 760) -> "ChatPage":
        """The same as soon as it is there, whatever it asks first."""
        self.driver.get_log("browser")
        self._command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.driver.get(address)
        return ChatPage(self.driver)

    def offline(self, on: bool) -> None:
        self._command("Network.enable")
        self._command(
            "Network.emulateNetworkConditions",
            offline=on,
            latency=0,
            downloadThroughput=-1,
            uploadThroughput=-1,
        )

    def prefer(self, scheme: str = "light", motion: str = "no-preference") -> None:
        wishes = {"prefers-color-scheme": scheme, "prefers-reduced-motion": motion}
        features = [{"name": name, "value": value} for name, value in wishes.items()]
        self._command("Emulation.setEmulatedMedia", features=features)

    def reset(self) -> None:
        self.offline(False)
        self.prefer()

    def screenshot(self, file: Path) -> None:
        self.driver.save_screenshot(str(file))

    def close(self) -> None:
        self.driver.quit()

    def _command(self, name: str, **arguments: Any) -> None:
        self.driver.execute_cdp_cmd(name, arguments)


class ChatPage:
    """What can be seen and done on the page."""

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver

    def asks(self) -> bool:
        """Whether a dialog is open."""
        return bool(alert_is_present()(self.driver))

    def answer_dialog(self, text: str) -> None:
        dialog = self.driver.switch_to.alert
        dialog.send_keys(text)
        dialog.accept()

    def one(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        """What these elements say, read at one moment: the routing view draws itself anew."""
        found = f"[...document.querySelectorAll({selector!r})]"
        return list(self.run(f"return {found}.map((e) => (e.innerText ?? e.textContent).trim())"))

    def heard(self) -> dict[str, list[str]]:
        """The names of what is on the page, by role, as a screen reader is told."""
        tree = self.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})
        found: dict[str, list[str]] = {}
        for node in tree["nodes"]:
            if not node["ignored"]:
                name = node.get("name", {}).get("value", "")
                found.setdefault(node["role"]["value"], []).append(name)
        return found

    def run(self, script: str) -> Any:
        return self.driver.execute_script(script)

    def contrast(self, ink: str, ground: str) -> float:
        """Return the contrast of two CSS colours as WCAG 2.2 defines it, 1 to 21."""
        return float(self.driver.execute_script(CONTRAST, ink, ground))

    def record_conversations(self) -> None:
        """Keep the messages of what is asked from now on; `conversations` returns them."""
        self.run(RECORD)

    def conversations(self) -> list[list[dict[str, str]]]:
        return list(self.run("return window.sent"))

    def until(self, condition: Callable[[], Any], seconds: float = WAIT_SECONDS) -> Any:
        """The condition's first true value; fails where there is none in time."""
        wait = WebDriverWait(self.driver, seconds, poll_frequency=0.05)
        return wait.until(lambda _: condition())

    def type(self, text: str) -> None:
        """Into the message field; a line break is Shift+Enter, as for a person."""
        shift_enter = (Keys.SHIFT, Keys.ENTER, Keys.NULL)
        field = self.one("#prompt")
        first, *others = text.split("\n")
        field.send_keys(first)
        for line in others:
            field.send_keys(*shift_enter, line)

    def press(self, key: str) -> None:
        """A named key (TAB, ENTER, ESCAPE), wherever the focus is."""
        self.driver.switch_to.active_element.send_keys(getattr(Keys, key))

    def focused(self) -> str:
        """The focused element's id, or its tag where it has none."""
        element = self.driver.switch_to.active_element
        return element.get_attribute("id") or element.tag_name

    def ask(self, text: str) -> None:
        self.type(text)
        self.press("ENTER")

    def answers(self) -> list[str]:
        return [e.text for e in self.all(".assistant .text") if e.is_displayed()]

    def facts(self) -> dict[str, str]:
        """What stands below the last answer, by name."""
        facts = {}
        for fact in self.all(".turn:last-child .facts > span"):
            value = fact.find_element(By.TAG_NAME, "b").text
            facts[fact.text.removesuffix(value).strip()] = value
        return facts

    def finished(self, turns: int = 1) -> None:
        """Wait until so many answers are complete."""
        self.until(lambda: len(self.all(".assistant")) == turns and not self.all(".busy"))

    def errors(self) -> list[str]:
        return [e.text for e in self.all(".error")]

    def console_errors(self) -> list[str]:
        logged = self.driver.get_log("browser")
        return [entry["message"] for entry in logged if entry["level"] == "SEVERE"]

    def sideways(self) -> int:
        """Pixels by which the page is wider than its window."""
        return int(
            self.run("const e = document.documentElement; return e.scrollWidth - e.clientWidth")
        )

    def imported(self, module: str, script: str) -> Any:
        """What `script` returns, in which `it` is the page's module of that name."""
        return self.driver.execute_async_script(
            f"""const done = arguments[0];
            import('/web/{module}').then((it) => {{ {script} }})
              .then(done, (error) => done(`${{error}}`));"""
        )

    def view(self, name: str) -> None:
        """Go to another view by its link."""
        next(link for link in self.all("nav a") if link.text == name).click()
