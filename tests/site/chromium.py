"""A headless Chromium on one site, which can reach nothing else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

SIZES = {360: 740, 1280: 900}
"""Width of the window -> height, in CSS pixels."""


def axe_source() -> str:
    """The text of axe-core; the package is there for this file only, and what it needs itself isn't installed."""
    return (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")


def installed(program: str) -> str:
    """Path of a program; Selenium would look for one on the network instead.

    Raises:
        FileNotFoundError: the program isn't on the PATH.
    """
    path = shutil.which(program)
    if path is None:
        raise FileNotFoundError(f"{program} isn't on the PATH; tools/install_browser.sh installs it")
    return path


class Browser:
    """One window on the site at ``address``, which ends in a slash."""

    def __init__(self, address: str) -> None:
        self.address = address
        options = ChromeOptions()
        options.binary_location = installed("chromium")
        for argument in (
            "headless=new", "no-sandbox", "disable-dev-shm-usage", "disable-gpu", "hide-scrollbars",
            "disable-background-networking", "disable-component-update", "disable-sync", "no-first-run",
            "host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        ):  # fmt: skip
            options.add_argument(f"--{argument}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = Chrome(options=options, service=Service(installed("chromedriver")))
        self.driver.set_script_timeout(120)
        self._axe = axe_source()

    @property
    def versions(self) -> str:
        axe = self._axe.partition("axe v")[2].split(maxsplit=1)[0]
        return f"Chromium {self.driver.capabilities['browserVersion']}, axe {axe}"

    def close(self) -> None:
        self.driver.quit()

    def run(self, script: str, *arguments: object) -> Any:
        """The value of a script's ``return``."""
        return self.driver.execute_script(script, *arguments)

    def until(self, script: str) -> None:
        """Wait for a script to return true."""
        WebDriverWait(self.driver, 20, poll_frequency=0.05).until(lambda _: self.run(script))

    def find(self, selector: str) -> WebElement:
        return self.driver.find_element("css selector", selector)

    def press(self, key: str) -> None:
        """Press a key, by its name in Selenium, wherever the focus is."""
        ActionChains(self.driver).send_keys(getattr(Keys, key)).perform()

    def cdp(self, command: str, **parameters: object) -> Any:
        return self.driver.execute_cdp_cmd(command, parameters)

    def open(self, page: str, width: int = 1280, scheme: str = "light", script: bool = True) -> None:
        """Load a page of the site afresh: nothing stored, nothing in the logs but its own entries."""
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=SIZES[width], deviceScaleFactor=1,
                 mobile=False)  # fmt: skip
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.cdp("Emulation.setScriptExecutionDisabled", value=not script)
        self.cdp("Storage.clearDataForOrigin", origin=self.address, storageTypes="local_storage")
        for log in ("browser", "performance"):
            self.driver.get_log(log)
        self.driver.get(self.address + page)

    def console(self) -> list[str]:
        """What the console said since the page was opened, information left out."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] != "INFO"]

    def requests(self) -> Iterator[str]:
        """Addresses that were asked for since the page was opened."""
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                yield message["params"]["request"]["url"]

    def screenshot(self) -> tuple[tuple[int, int], bytes]:
        """Width and height that the window has, and its picture as PNG."""
        width, height = self.run("return [innerWidth, innerHeight]")
        return (width, height), self.driver.get_screenshot_as_png()

    def axe(self) -> list[str]:
        """What axe finds wrong with the page, worst first: impact, rule and the elements.

        Tables are cut first, for time: their rows are all made alike.
        """
        self.run("document.querySelectorAll('tbody tr:nth-child(n + 40)').forEach((row) => row.remove())")
        self.run(self._axe)
        found = self.driver.execute_async_script(
            "const done = arguments[0];"
            "axe.run(document, {resultTypes: ['violations']})"
            ".then((r) => done(r.violations), (e) => done([{impact: 'critical', id: String(e), nodes: []}]))"
        )
        order = ("critical", "serious", "moderate", "minor")
        return [
            f"{v['impact']}: {v['id']} at {' | '.join(str(n['target'][0]) for n in v['nodes'][:5])}"
            for v in sorted(found, key=lambda v: order.index(v["impact"]))
        ]
