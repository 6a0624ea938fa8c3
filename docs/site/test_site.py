"""The built site, in headless Chromium: links and anchors, width, code, plots, tabs, light and dark, and the search."""

import functools
import http.server
import re
import shutil
import struct
import threading
import zlib
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import pytest
from playwright.sync_api import sync_playwright

SITE = Path(__file__).parents[2] / "build/site"
PAGES = sorted(str(page.relative_to(SITE)) for page in SITE.rglob("*.html") if page.name != "404.html")
WIDTHS = (390, 1400)


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Files of the site, without a line a request."""

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def address():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=SITE))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(params=WIDTHS)
def page(request, browser):
    opened = browser.new_page(viewport={"width": request.param, "height": 900})
    yield opened
    opened.close()


def test_every_page_is_there():
    assert len(PAGES) > 30
    assert "index.html" in PAGES


def test_links(browser, address):
    """No link leads to a page, a file or an anchor that is not there."""
    opened = browser.new_page()
    ids, links = {}, []
    for name in PAGES:
        opened.goto(address + name)
        ids[name] = set(opened.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)"))
        links += [(name, link) for link in opened.evaluate(
            "[...document.querySelectorAll('.md-content a[href], .md-nav a[href]')].map(a => a.getAttribute('href'))")]
    assert len(links) > 1000
    dead = set()
    for name, link in links:
        if urlsplit(link).scheme in ("http", "https", "mailto"):
            continue
        target, anchor = urldefrag(urljoin(name, link))
        target = unquote(target).rstrip("/") or "index.html"
        if target in ids and anchor and unquote(anchor) not in ids[target] | {"__top"}:
            dead.add(f"{name}: {link}: no anchor")
        elif target not in ids and not (SITE / target).exists():
            dead.add(f"{name}: {link}")
    assert not dead, "\n".join(sorted(dead))


def test_nothing_is_wider_than_the_window(page, address):
    """Tables and code may scroll in themselves; the page does not."""
    wide = []
    for name in PAGES:
        page.goto(address + name)
        if page.evaluate("document.documentElement.scrollWidth > window.innerWidth + 1"):
            wide.append(name)
    assert wide == []


def test_code_is_shown_as_a_whole(browser, address):
    """On a wide screen, code of up to 120 columns needs no scrolling."""
    opened = browser.new_page(viewport={"width": max(WIDTHS), "height": 900})
    cut, coloured = set(), 0
    for name in PAGES:
        opened.goto(address + name)
        cut |= {f"{name}: {text}" for text in opened.evaluate(
            "[...document.querySelectorAll('.md-content pre > code')].filter(e => e.scrollWidth > e.clientWidth + 1)"
            ".map(e => e.innerText)") if max(map(len, text.splitlines())) <= 120}
        coloured += opened.evaluate("document.querySelectorAll('.md-content .highlight .gp').length")
    assert not cut, "\n".join(sorted(cut))
    assert coloured > 100, "prompts of consoles"


def test_tabs(browser, address):
    """The address of a quick start selects its tab."""
    opened = browser.new_page()
    opened.goto(address + "docs/quick-start.html#java")
    opened.locator("text=Duration.ofSeconds").first.wait_for()
    assert not opened.locator("text=lock_election.connect(ttl=30)").first.is_visible()
    opened.locator("label[for=python]").first.click()
    opened.locator("text=import lock_election").first.wait_for()


def test_pictures_can_be_read(page, address):
    """Every picture is loaded, and the smallest text in it is at least 9 pixels high on the screen."""
    seen, small = 0, set()
    for name in PAGES:
        page.goto(address + name)
        for source, natural, shown, complete in page.evaluate(
                "[...document.querySelectorAll('.md-content img')].map(i => [i.src, i.naturalWidth, i.clientWidth, i.complete])"):
            assert complete and natural > 0, f"{name}: {source}"
            seen += 1
            if not source.endswith(".svg"):
                continue
            text = (SITE / urlsplit(source).path.lstrip("/")).read_text(encoding="utf-8")
            sizes = [float(size) for size in re.findall(r'(?:font-size="|font: )([\d.]+)', text)]
            # The unit of the sizes is that of the view box.
            width = float(re.search(r'viewBox="[\d.]+ [\d.]+ ([\d.]+)', text)[1])
            if min(sizes) * shown / width < 9:
                small.add(f"{name}: {source}: {min(sizes) * shown / width:.1f} pixels")
    assert seen >= 5
    assert not small, "\n".join(sorted(small))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(browser, address, scheme):
    """The text stands out from what is behind it, by WCAG's ratio of 4.5."""
    opened = browser.new_page(color_scheme=scheme)
    opened.goto(address)
    colours = opened.evaluate("""() => {
        const style = (e, what) => getComputedStyle(e)[what];
        return [style(document.body, 'backgroundColor'), style(document.querySelector('.md-typeset p'), 'color')];
    }""")
    background, text = (luminance(colour) for colour in colours)
    assert (background > 0.5) == (scheme == "light"), colours
    assert (max(background, text) + 0.05) / (min(background, text) + 0.05) >= 4.5, colours


def test_pictures_in_the_dark(browser, address):
    """A picture has the ground of the page."""
    opened = browser.new_page(color_scheme="dark", viewport={"width": max(WIDTHS), "height": 900})
    for name in ("index.html", "docs/design/performance.html"):
        opened.goto(address + name)
        picture = opened.locator(".md-content img").first
        picture.scroll_into_view_if_needed()
        box = picture.bounding_box()
        ground, beside = (pixel(opened, box["x"] + x, box["y"] + box["height"] / 2) for x in (3, -6))
        assert max(abs(a - b) for a, b in zip(ground, beside)) <= 2, f"{name}: {ground} on {beside}"


def pixel(page, x, y):
    """Red, green and blue of a point of the window: from a PNG, whose first pixel no filter changes."""
    png = page.screenshot(clip={"x": x, "y": y, "width": 1, "height": 1})
    at, data = 8, b""
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at:at + 8])
        data += png[at + 8:at + 8 + length] if kind == b"IDAT" else b""
        at += length + 12
    return tuple(zlib.decompress(data)[1:4])


def luminance(colour):
    """Of a colour as the browser tells it, upon a middle grey where it is transparent."""
    parts = [float(part) for part in re.findall(r"[\d.]+", colour)]
    alpha = parts[3] if len(parts) > 3 else 1
    linear = []
    for part in parts[:3]:
        part = (part * alpha + 127 * (1 - alpha)) / 255
        linear.append(part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4)
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_search(page, address):
    """A search for a word of the field finds the section about it."""
    page.goto(address)
    if page.viewport_size["width"] < 800:
        page.locator("label[for=__search]").first.click()
    page.locator(".md-search__input").press_sequentially("fence")
    result = page.locator(".md-search-result__link").first
    result.wait_for(timeout=120000)
    found = page.locator(".md-search-result__link").evaluate_all("links => links.map(l => l.getAttribute('href'))")
    assert any("guide.html" in link and "fencing" in link for link in found), found
