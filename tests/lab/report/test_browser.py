"""The page in a real browser: it sorts, it fits on a phone, it can be read by day and by night."""

import shutil

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
)  # fmt: skip
DESKTOP, PHONE = {"width": 1360, "height": 900}, {"width": 390, "height": 800}


@pytest.fixture(scope="module")
def browser():
    where = next(filter(None, map(shutil.which, BROWSERS)), None)
    if where is None:
        pytest.skip(f"no browser is installed here: none of {', '.join(BROWSERS)}")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=where, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def visit(browser, folder):
    """Open the page, once for each kind of device; at the end, it has loaded nothing else, and no script has failed or
    been smuggled in."""
    pages, heard, address = {}, [], (folder / "report.html").as_uri()

    def visit(viewport, **options):
        if (kind := viewport["width"]) not in pages:
            page = pages[kind] = browser.new_context(viewport=viewport, **options).new_page()
            page.on("console", lambda message: heard.append(message.text))
            page.on("pageerror", lambda error: heard.append(str(error)))
            page.on("request", lambda request: None if request.url.startswith("data:") else heard.append(request.url))
            page.goto(address)
        return pages[kind]

    yield visit
    for page in pages.values():
        assert page.evaluate("window.hacked") is None
    assert heard == [address] * len(pages)


def column(table, title):
    """What stands in a column, from top to bottom."""
    heads, rows = table.evaluate(
        """table => [Array.from(table.querySelectorAll("th"), one => one.innerText),
                    Array.from(table.tBodies[0].rows, row => Array.from(row.cells, one => one.innerText))]"""
    )
    i = next(i for i, head in enumerate(heads) if head.startswith(title))
    return [row[i].split("\n")[0] for row in rows]


def test_on_a_desktop(visit):
    page = visit(viewport=DESKTOP)
    assert page.evaluate("document.documentElement.scrollWidth") == DESKTOP["width"]


def test_tables_sort(visit):
    page = visit(viewport=DESKTOP)
    table = page.get_by_role("table", name="Paper and ours").first
    head = table.get_by_role("columnheader", name="ours", exact=True)
    before = column(table, "ours")
    head.get_by_role("button").click()
    rising = [float(text.split(" ± ")[0]) for text in column(table, "ours")]
    assert head.get_attribute("aria-sort") == "ascending"
    assert rising == sorted(rising)
    assert len(rising) == len(before)
    assert column(table, "ours") != before
    head.get_by_role("button").press("Enter")  # with the keyboard, too
    assert head.get_attribute("aria-sort") == "descending"
    assert [float(text.split(" ± ")[0]) for text in column(table, "ours")] == rising[::-1]
    other = table.get_by_role("columnheader", name="paper", exact=True)
    for expected in ("ascending", "descending"):  # those without a value stay at the end
        other.get_by_role("button").click()
        assert other.get_attribute("aria-sort") == expected
        filled = [text != "–" for text in column(table, "paper")]
        assert filled == sorted(filled, reverse=True)
    assert head.get_attribute("aria-sort") is None
    table.get_by_role("columnheader", name="variant").get_by_role("button").click()
    names = column(table, "variant")
    assert names == sorted(names, key=lambda name: name.split()[-1])


def test_on_a_phone(visit):
    page = visit(viewport=PHONE, is_mobile=True, has_touch=True)
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    page.evaluate("scrollTo(500, 0)")
    assert page.evaluate("scrollX") == 0
    scrolls = page.evaluate(
        "Array.from(document.querySelectorAll('.scroll'), one => one.scrollWidth > one.clientWidth)"
    )
    assert any(scrolls)  # inside
    clipped = """Array.from(document.querySelectorAll("td, th button, dd, figcaption, summary"))
        .filter((one) => one.clientWidth && one.scrollWidth > one.clientWidth + 1).map((one) => one.textContent)"""
    assert page.evaluate(clipped) == []
    table = page.get_by_role("region", name="Paper and ours").first
    table.evaluate("one => one.scrollTo(one.scrollWidth, 0)")
    whose = table.locator("td.variant").first.bounding_box()
    assert abs(whose["x"] - table.bounding_box()["x"]) < 2  # it stays in sight
    forest = page.locator(".forest img").first  # its letters are as large as they were drawn
    assert forest.evaluate("one => one.width / one.naturalWidth") >= 0.99


def test_figures_are_dark_by_night(visit):
    """The paper of a figure is that of the page; a figure too large for SVG stays white."""
    page = visit(viewport=DESKTOP)
    corner = """async (name) => {
        const image = document.querySelector(name), canvas = document.createElement("canvas");
        image.scrollIntoView();
        await image.decode();
        canvas.width = image.width;
        canvas.height = image.height;
        const context = canvas.getContext("2d");
        context.drawImage(image, 0, 0, canvas.width, canvas.height);
        return Array.from(context.getImageData(2, 2, 1, 1).data).slice(0, 3);
    }"""
    for scheme, expected in (("light", [255, 255, 255]), ("dark", [0x1D, 0x20, 0x24])):
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate(corner, ".forest img") == expected


def test_words_can_be_read(visit):
    """Contrast of text to its ground is at least 4.5 by day and by night (WCAG AA)."""
    measure = """() => {
        const parse = (text) => text.match(/[\\d.]+/g).map(Number);
        const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
            .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
            .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
        const ground = (one) => {
            for (; one; one = one.parentElement) {
                const colour = parse(getComputedStyle(one).backgroundColor);
                if (colour.length === 3 || colour[3] === 1) return colour;
            }
            return [255, 255, 255];
        };
        const found = {};
        const words = "h1, h2, p, a, td, td small, th button, dt, dd, .badge, figcaption, li, code";
        for (const one of document.querySelectorAll(words)) {
            const a = light(parse(getComputedStyle(one).color)), b = light(ground(one));
            const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
            const name = one.tagName + " " + one.className;
            found[name] = Math.min(found[name] ?? 99, ratio);
        }
        return found;
    }"""
    page = visit(viewport=DESKTOP)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found = page.evaluate(measure)
        assert len(found) > 12
        assert {name: ratio for name, ratio in found.items() if ratio < 4.5} == {}
