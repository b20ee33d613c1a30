"""The page in a real browser: by mouse and by keyboard, on a phone and on a desk, without a complaint."""

import json

import pytest

pytest.importorskip("fastapi", reason="the service needs pip install 'pclf[serve]'")

from browser import Browser
from services import Service

from pclf.service.gate import POLICY

READY = "document.documentElement?.dataset.ready === 'yes'"
EVIL = "<img src=x onerror=\"window.hurt = 1\"><script>window.hurt = 1</script>"


@pytest.fixture(scope="module")
def service(served_model, tmp_path_factory):
    with Service(tmp_path_factory.mktemp("page"), served_model) as running:
        running.rate(*((f"p-{i}", "books", "Soups of Lyon", 5) for i in range(5)))
        running.ask("PUT", "/v1/ratings", {"ratings": [{"user": EVIL, "domain": "books", "item": EVIL, "rating": 5,
                                                        "title": EVIL}]})
        running.refit()
        yield running


def choose(browser, text, n):
    """Find a title and take the first one, by keyboard alone."""
    browser.run("document.getElementById('find').focus()")
    browser.type(text)
    browser.wait("!document.getElementById('found').hidden && document.querySelector('#found li').textContent"
                 f".toLowerCase().includes({json.dumps(text)})")
    browser.press("ArrowDown")
    browser.press("Enter")
    browser.wait(f"document.querySelectorAll('#basket li').length === {n}")


def lists(browser):
    return browser.run("[...document.querySelectorAll('#lists .catalogue')].map((card) => "
                       "[...card.querySelectorAll('.title')].map((title) => title.firstChild.textContent))")


@pytest.mark.parametrize(("width", "dark"), [(390, True), (1280, False)])
def test_rating_a_title_moves_every_catalogue_and_all_views_open_without_a_complaint(service, width, dark):
    with Browser(width, dark=dark) as browser:
        browser.open(service.address)
        browser.wait(READY)
        before = lists(browser)
        assert [len(found) for found in before] == [8, 8, 8]
        choose(browser, "kyoto", 1)
        choose(browser, "boston", 2)
        browser.run("document.querySelector('#basket li .stars button').click()")       # Boston: one star
        browser.wait("/moved/.test(document.getElementById('spoken').textContent)")
        browser.wait("!document.querySelector('.waiting')")
        after = lists(browser)
        assert all(old != new for old, new in zip(before, after, strict=True))
        assert browser.run("document.querySelectorAll('#lists .dist').length") == 24
        assert browser.run("[...document.querySelectorAll('#lists .why')].some((p) => /^Because you loved/.test("
                           "p.textContent))")
        for name, there in (("pair", "#sides .catalogue:nth-child(2) li"), ("person/ana-000", "#person-lists li"),
                            ("operator", ".panel .chart")):
            browser.run(f"location.hash = '#{name}'")
            browser.wait(f"document.querySelector({json.dumps(there)}) !== null")
            assert browser.run("document.documentElement.scrollWidth") <= width
        assert browser.run("document.querySelectorAll('nav a[aria-current]').length") == 1
        assert browser.said == []


def test_whatever_is_in_ids_and_titles_stays_text(service):
    with Browser(1280) as browser:
        browser.open(f"{service.address}/#person/{EVIL.replace('#', '')}")
        browser.wait(READY)
        browser.run(f"document.getElementById('who').value = {json.dumps(EVIL)};"
                    "document.getElementById('look-up').requestSubmit()")
        browser.wait("document.getElementById('person-rated').textContent.includes('onerror')")
        assert browser.run("window.hurt") is None
        assert browser.run("document.querySelectorAll('img').length") == 0
        assert browser.said == []


def test_what_was_rated_is_in_the_address_and_a_rating_can_be_taken_back(service):
    with Browser(1280) as browser:
        browser.open(service.address)
        browser.wait(READY)
        browser.run("document.getElementById('try').click()")
        browser.wait("document.querySelectorAll('#lists .fresh').length > 0")
        rated, after = browser.run("document.getElementById('basket').textContent"), lists(browser)
        browser.run("window.before = true")
        browser.send("Page.reload")
        browser.wait(f"!window.before && {READY} && document.querySelectorAll('#basket li').length === 3")
        assert browser.run("document.getElementById('basket').textContent") == rated
        assert lists(browser) == after
        browser.run("document.querySelector('#basket .drop').click()")
        browser.wait("/^You took back/.test(document.getElementById('spoken').textContent)")
        assert browser.run("document.querySelectorAll('#basket li').length") == 2
        assert browser.run("document.activeElement.className") == "drop"
        browser.run("document.querySelector('.skip').click()")                  # the address stays that of the view
        assert browser.run("location.hash.startsWith('#taste/') && document.activeElement.id") == "main"
        assert browser.said == []


def test_a_service_that_does_not_answer_is_said_and_asked_again(service):
    with Browser(1280) as browser:
        browser.open(service.address)
        browser.wait(READY)
        network = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        browser.send("Network.emulateNetworkConditions", offline=True, **network)
        browser.run("document.querySelector('#ideas button').click()")
        browser.wait("document.getElementById('notice').textContent.startsWith('The service does not answer.')")
        browser.send("Network.emulateNetworkConditions", offline=False, **network)
        browser.run("document.querySelector('#notice button').click()")
        browser.wait("document.getElementById('notice').hidden && document.querySelector('#lists .fresh') !== null")


def test_every_control_has_a_name_and_can_be_reached_by_keyboard(service):
    with Browser(1280) as browser:
        browser.open(service.address)
        browser.wait(READY)
        nameless = browser.run(
            "[...document.querySelectorAll('button, input, select, a')].filter((e) => !(e.textContent.trim() || "
            "e.getAttribute('aria-label') || e.labels?.length)).map((e) => e.outerHTML)")
        assert nameless == []
        reached = set()
        for _ in range(12):
            browser.press("Tab")
            reached.add(browser.run("document.activeElement.id || document.activeElement.textContent"))
        assert "find" in reached
        assert len(reached) >= 10


def test_the_page_may_load_nothing_from_elsewhere_and_run_nothing_inside(service):
    assert service.ask("GET", "/")[0] == 200
    assert service.headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY
    text = service.get("/")
    assert "http://" not in text
    assert "https://" not in text
