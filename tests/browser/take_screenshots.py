"""The pictures of docs/clients.md, taken of the real service: `make screenshots`."""

import argparse
import os
import tempfile
from io import BytesIO
from pathlib import Path

from chat_page import Browser, ChatPage
from PIL import Image

from ops.common.running_service import running_service

PHONE = (360, 740)
CODE = "Add a docstring to this function.\ndef total(prices):\n    return sum(prices)"
LIST = (
    "Make a list of who has what.\n"
    "Paula bought 67 peaches. Anna bought 24 sandwiches. Zoe bought 18 tickets."
)


class Pictures:
    """Takes them, and writes them in 256 colours, since they are committed."""

    def __init__(self, browser: Browser, address: str, folder: Path) -> None:
        self._browser, self._address, self._folder = browser, address, folder

    def page(self, width: int, height: int, scheme: str = "light") -> ChatPage:
        self._browser.prefer(scheme)
        return self._browser.open(self._address, width, height)

    def taken(self) -> Image.Image:
        return Image.open(BytesIO(self._browser.driver.get_screenshot_as_png())).convert("RGB")

    def write(self, name: str, *pictures: Image.Image) -> None:
        """Side by side, where there are several."""
        gap = 24
        width = sum(one.width for one in pictures) + gap * (len(pictures) - 1)
        sheet = Image.new("RGB", (width, max(one.height for one in pictures)), "white")
        left = 0
        for one in pictures:
            sheet.paste(one, (left, 0))
            left += one.width + gap
        file = self._folder / f"{name}.png"
        few = sheet.quantize(method=Image.Quantize.MAXCOVERAGE, kmeans=2, dither=Image.Dither.NONE)
        few.save(file, optimize=True)
        print(f"{file}  {sheet.width} x {sheet.height}  {file.stat().st_size / 1e3:.0f} kB")


def chatted(page: ChatPage, *prompts: str) -> ChatPage:
    """After a conversation at temperature 0, which goes the same way every time."""
    page.run("document.getElementById('temperature').value = 0")
    for turns, prompt in enumerate(prompts, start=1):
        page.ask(prompt)
        page.finished(turns)
    return page


def compared(page: ChatPage, prompt: str) -> ChatPage:
    page.view("Compare")
    page.run(f"document.getElementById('question').value = {prompt!r}")
    page.run("document.getElementById('question').dispatchEvent(new Event('input'))")
    page.one("#run").click()
    page.until(lambda: page.one("#run").is_displayed() and page.all("#lanes .turn"))
    page.run("document.activeElement.blur()")
    return page


def routed(page: ChatPage, prompt: str) -> ChatPage:
    chatted(page, prompt)
    page.view("Routing")
    page.until(lambda: page.all("#clusters tr[aria-current]"))
    return page


def take(pictures: Pictures) -> None:
    chatted(pictures.page(900, 860), LIST, CODE)
    pictures.write("chat", pictures.taken())
    compared(pictures.page(1000, 560), LIST)
    pictures.write("compare", pictures.taken())
    routed(pictures.page(900, 1120), CODE)
    pictures.write("routing", pictures.taken())
    pictures.page(900, 640)
    first = pictures.taken()
    chatted(pictures.page(900, 640, "dark"), CODE)
    pictures.write("dark", first, pictures.taken())
    chatted(pictures.page(*PHONE), CODE)
    phones = [pictures.taken()]
    compared(pictures.page(*PHONE), LIST)
    phones.append(pictures.taken())
    routed(pictures.page(*PHONE, "dark"), CODE)
    pictures.write("phone", *phones, pictures.taken())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    with (
        running_service(os.environ.get("SPECADAPT_URL"), None) as address,
        tempfile.TemporaryDirectory() as scratch,
    ):
        browser = Browser(Path(scratch))
        try:
            take(Pictures(browser, address, folder))
        finally:
            browser.close()


if __name__ == "__main__":
    main()
