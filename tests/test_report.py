"""The report: one page that stands alone, says what it found, and opens in a real browser."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from html import escape, unescape
from html.parser import HTMLParser
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from pclf import datasets, plots, report
from pclf.data.ratings import Ratings
from pclf.errors import NotFittedError, OutputError, UnknownNameError
from pclf.evaluate import metrics
from pclf.models.fmm import FMM
from pclf.models.pclf import PCLF
from pclf.models.rmgm import RMGM
from pclf.report import facts

NASTY = "</title><script>alert(1)</script>\"><img src=http://x.test/a.png onerror=alert(2)> {{ 7 * 7 }} $x^2$"
CLUSTERS = ["Rating patterns", "Item clusters", "User clusters", "The fit"]
TOPICS = ["What predictions use", "How good they are", "Lists", "What was pooled", *CLUSTERS]
WORDS = {"films": ("Rocket", "Wedding"), "books": ("Dragon", "Garden"), "games": ("Racing", "Puzzle")}


def make_ratings(n_domains=2, titles=True, seed=0, names=("films", "books", "games")):
    """Two kinds of users and two kinds of items a domain, whose titles say which they are."""
    rng = np.random.default_rng(seed)
    arrays, shown = {}, {}
    for z, name in enumerate(names[:n_domains]):
        n_users, n_items = 24, 16
        user, item = np.nonzero(rng.random((n_users, n_items)) < 0.6)
        alike = (user % 2) == (item % 2)
        rating = np.where(alike, 5, 2) - (rng.random(len(user)) < 0.3)
        arrays[name] = user + 1000 * z, item + 1000 * z, rating
        first, second = list(WORDS.values())[z]
        shown[name] = {i + 1000 * z: f"{(first, second)[i % 2]} number {'abcdefghijklmnop'[i]}xx"
                       for i in range(n_items)}
    return Ratings.from_arrays(arrays, scale=(1, 5), titles=shown if titles else None)


def small(kind=PCLF, **settings):
    """One plain fit with two clusters of each kind."""
    sizes = {"n_common_clusters": 2, "n_specific_clusters": 2} if kind is PCLF else {"n_item_clusters": 2}
    return kind.paper(**{"n_user_clusters": 2, "start": "memberships", **sizes, **settings})


def fitted(kind=PCLF, n_domains=2, **options):
    return small(kind).fit(make_ratings(n_domains, **options), engine="reference")


@pytest.fixture(scope="module")
def model():
    return fitted()


@pytest.fixture(scope="module")
def html(model):
    return report.render(model)


class Page(HTMLParser):
    """What a test wants to know of a page: tags with attributes, and the text inside some of them."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.inside, self.text = [], [], {}
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.inside.append((tag, dict(attributes)))
        if tag in ("h1", "h2", "h3", "h4", "figcaption", "p"):
            self.text.setdefault(tag, []).append("")

    def handle_endtag(self, tag):
        while self.inside and self.inside.pop()[0] != tag:
            pass

    def handle_data(self, data):
        for tag, _ in self.inside:
            if tag in self.text:
                self.text[tag][-1] += data

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def topics(self):
        return [text for text in self.text["p"] if text in (*TOPICS, "Does pooling help?", "Clusters")]


@pytest.mark.parametrize("n_domains", [1, 2, 3])
@pytest.mark.parametrize("kind", [FMM, RMGM, PCLF])
def test_every_model_has_a_page_with_all_topics_findings_and_figures(kind, n_domains):
    model = fitted(kind, n_domains)
    page = Page(report.render(model))
    assert page.topics == TOPICS
    assert len(page.text["h2"]) == len(TOPICS)
    assert all(len(finding.split()) >= 4 for finding in page.text["h2"])
    one_user_figure = kind is not FMM or n_domains == 1
    expected = 1 + len(model.layout_.views) + one_user_figure + (kind is PCLF) + n_domains + 1
    assert len(page.all("figure")) == len(page.all("svg")) == len(page.all("figcaption")) == expected


def test_every_figure_has_an_alt_text_and_a_caption(html):
    page = Page(html)
    alts = [svg["aria-label"] for svg in page.all("svg")]
    assert all(svg["role"] == "img" for svg in page.all("svg"))
    assert all(len(alt) > 40 for alt in alts)
    assert len(set(alts)) == len(alts)
    assert all(len(caption) > 40 for caption in page.text["figcaption"])


def test_the_page_loads_nothing_and_runs_nothing(html):
    page = Page(html)
    assert not re.search(r"https?://", html)
    assert not {"script", "link", "img", "iframe", "object", "embed"} & {tag for tag, _ in page.tags}
    assert all(value.startswith("#") for _, attributes in page.tags
               for name, value in attributes.items() if name in ("href", "src", "xlink:href"))
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", html))
    assert "@import" not in html


def test_links_and_references_inside_the_page_lead_to_one_place_each(html):
    ids = [attributes["id"] for _, attributes in Page(html).tags if "id" in attributes]
    assert len(set(ids)) == len(ids)
    targets = re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)|aria-labelledby="([^"]*)"', html)
    assert {a or b or c for a, b, c in targets} <= set(ids)


def test_text_in_figures_takes_the_colour_and_the_font_of_the_page(html):
    styles = re.findall(r'<text style="([^"]*)"', html)
    assert len(styles) > 50
    assert not any("font-family" in style or "font:" in style for style in styles)
    fills = {(re.findall(r"fill: ([^;]*)", style) or ["black"])[0] for style in styles}
    assert fills == {"currentColor", "black", "#ffffff"}   # black and white on coloured cells only
    assert report.INK not in html


def test_nothing_that_a_title_or_a_name_contains_becomes_markup():
    data = make_ratings(names=(NASTY, f"2 {NASTY}"))
    domains = {name: (d.users.array()[d.user], d.items.array()[d.item], d.ratings)
               for name, d in data.domains.items()}
    titles = {name: {i: f"{NASTY} {i}" for i in d.items.ids} for name, d in data.domains.items()}
    model = small().fit(Ratings.from_arrays(domains, scale=(1, 5), titles=titles), engine="reference")
    html = report.render(model, audit=SimpleNamespace(verdicts=[NASTY]))
    page = Page(html)
    assert not {"script", "img"} & {tag for tag, _ in page.tags}
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert escape(NASTY, quote=False).replace('"', "&#34;") in html
    assert "49" not in page.text["h1"][0]
    assert f"2 {NASTY}" in page.text["h1"][0]


def test_figures_show_a_dollar_as_a_dollar():
    model = fitted(names=("$a^2$", "b_1"))
    for ax in (plots.shares(model), plots.cluster_shares(model), plots.calibration(model)):
        ax.figure.canvas.draw()
        assert not any(text.get_parse_math() for text in ax.get_yticklabels())
    assert "$a^2$" in re.findall(r"<text [^>]*>([^<]*)<", report.render(model))


def test_words_of_the_titles_tell_clusters_apart():
    model = fitted()
    kinds = [np.array([0.9, 0.1]) if code % 2 == 0 else np.array([0.1, 0.9]) for code in range(32)]
    films, books = ([kinds[i % 1000] for i in model.data_[name].items.ids] for name in ("films", "books"))
    known = replace(model.members_[0], items=(np.array(films + books), np.array(films), np.array(books)))
    model.mixture_ = replace(model.mixture_, members=(known,))
    common = [sorted(words) for words in facts.view_words(model, 0)]
    assert common == [["Dragon", "Rocket"], ["Garden", "Wedding"]]
    assert facts.view_words(model, 1) == [["Rocket"], ["Wedding"]]
    assert "<span>Words:</span> Rocket</p>" in report.render(model)


def test_words_that_all_clusters_share_are_not_shown():
    membership = np.repeat(np.eye(2), 20, axis=0)
    assert facts.distinctive_words(["The Long Night"] * 40, membership) == [[], []]
    assert facts.distinctive_words(["1984", "300", "xy"] * 10 + ["7"] * 10, membership) == [[], []]


def test_without_titles_the_page_has_ids_and_no_words():
    html = report.render(fitted(titles=False))
    assert "Words:" not in html
    assert "<span>1003</span>" in html


def test_the_page_says_that_it_checked_with_the_ratings_of_the_fit(html):
    assert "Checked with the ratings that the model was fitted to" in html
    assert "ratings of the fit itself" in html
    assert "test ratings that are no part" not in html


def test_errors_shown_for_test_ratings_are_those_of_the_test_ratings(model):
    test = make_ratings(seed=1)
    html = report.render(model, test=test)
    assert "ratings of the fit itself" not in html
    for name, d in test.domains.items():
        own = model.data_.domains[name]
        users, items = own.users.encode(d.users.ids)[d.user], own.items.encode(d.items.ids)[d.item]
        error = metrics.mae(d.ratings, model.predict_codes(name, users, items))
        assert f"In {name}, predictions are off by {error:.2f} on average" in html
        assert f"On {len(d):,} test ratings" in html


def test_test_ratings_of_strangers_are_left_out(model):
    known, strange = make_ratings(1), ([-1, -2], [0, 1], [5.0, 1.0])
    columns = known.to_frame("films")
    test = Ratings.from_arrays({"films": tuple(
        np.concatenate([columns[c], np.asarray(extra, columns[c].dtype)])
        for c, extra in zip(("user_id", "item_id", "rating"), strange, strict=True))}, scale=(1, 5))
    assert len(facts.check(model, "films", test).truth) == len(known)
    nobody = Ratings.from_arrays({"films": strange}, scale=(1, 5))
    assert "There are no test ratings of these users and items" in report.render(model, test=nobody)


def test_a_large_domain_is_checked_on_a_sample(model, monkeypatch):
    monkeypatch.setattr(facts, "SAMPLE", 50)
    checked = facts.check(model, "films")
    assert len(checked.truth) == 50 < checked.n_ratings == len(model.data_["films"])
    assert f"a sample of 50 of the {len(model.data_['films'])} ratings" in report.render(model)


def test_the_audit_comes_second_where_there_is_one(model):
    verdict = "Pooling with films lowers the error of books by 1.8 %."
    page = Page(report.render(model, audit=SimpleNamespace(verdicts=[verdict, "No harm elsewhere."])))
    assert page.topics == [TOPICS[0], "Does pooling help?", *TOPICS[1:]]
    assert verdict in page.text["p"]


def test_figures_of_the_audit_are_shown_where_it_has_them(model, html):
    audit = SimpleNamespace(
        verdicts=["It helps."], gains={"books": {"films": 0.02}, "films": {"books": -0.01}},
        significant={"books": {"films": True}, "films": {"books": False}},
        learning_curve={"books": CURVES, "films": CURVES})
    page = Page(report.render(model, audit=audit))
    assert len(page.all("figure")) == len(Page(html).all("figure")) + 3
    assert "With few users PCLF has the lowest error in books, with many FMM" in page.text["h3"]


@pytest.fixture(scope="module")
def with_factors():
    data = make_ratings()
    facts = {name: {"item": d.items.ids, "kind": [f"kind {i % 2}" for i in d.items.ids]}
             for name, d in data.domains.items()}
    columns = {name: tuple(data.to_frame(name).values()) for name in data.domains}
    titles = {name: dict(zip(d.items.ids, d.titles, strict=True)) for name, d in data.domains.items()}
    data = Ratings.from_arrays(columns, scale=(1, 5), titles=titles, attributes=facts)
    return PCLF(2, 2, 2, n_factors=3, factor_weight=1.0, max_iter=4, n_restarts=1).fit(data)


def test_the_page_begins_with_what_predictions_use(with_factors):
    page = Page(report.render(with_factors))
    assert page.text["h2"][0] == "Factors carry every prediction alone"
    for name in with_factors.data_.domains:
        assert with_factors.transfer_[name].bridges
        for bridge in with_factors.transfer_[name].bridges.values():
            assert f"{bridge.text[0].upper()}{bridge.text[1:]}" in page.text["p"]
    half = PCLF(2, 2, 2, n_factors=3, factor_weight={"films": 0.5, "books": 0.8}, max_iter=4, n_restarts=1, lists=False)
    html = report.render(half.fit(make_ratings()))
    assert Page(html).text["h2"][0] == "Factors carry 50\u00a0% to 80\u00a0% of a prediction, clusters the rest"
    assert "factors 80\u00a0%" in html


def test_clusters_without_weight_are_one_folded_section(with_factors):
    html = report.render(with_factors)
    page = Page(html)
    assert page.topics == [*TOPICS[:4], "Clusters", *CLUSTERS]
    assert html.index('id="clusters"') < html.index("<details>") < html.index('id="patterns"')
    assert "user clusters and" not in page.text["p"][1]


def test_lists_are_shown_with_what_people_will_pick_and_like(with_factors):
    tied = PCLF(2, 2, 2, n_factors=3, factor_weight=1.0, bridges=("attributes",), max_iter=4, n_restarts=1)
    html = report.render(tied.fit(with_factors.data_))
    page = Page(html)
    films = with_factors.data_["films"]
    person = films.users.ids[int(np.bincount(films.user).argmax())]
    assert f"films for {person}" in page.text["h4"]
    assert f"books for {person}, a visitor from films" in page.text["h4"]
    found = tied.recommend("books", person, 5, user_domain="films")
    rows = re.findall(r"<tr><td>(.*?)</td><td class=\"number\">(.*?)</td><td class=\"number\">(.*?)</td>", html)
    assert " ".join(r.title for r in found) in " ".join(title for title, *_ in rows)
    assert {f"{r.rating:.2f}" for r in found} <= {rating for _, rating, _ in rows}
    plain = report.render(fitted(FMM))
    assert "Lists are sorted by the expected rating" in plain
    assert ">chosen<" not in plain


def test_the_same_model_gives_the_same_page(model, html):
    assert report.render(model) == html


def test_a_common_matrix_is_shown_once_for_each_scale(html):
    columns = {name: tuple(make_ratings().to_frame(name).values()) for name in ("films", "books")}
    columns["books"] = (*columns["books"][:2], columns["books"][2] * 2)
    data = Ratings.from_arrays(columns, scale={"films": (1, 5), "books": (2, 4, 6, 8, 10)})
    two = report.render(small().fit(data, engine="reference"))
    assert len(Page(two).all("figure")) == len(Page(html).all("figure")) + 1
    assert "on the scale of films" in two
    assert "on the scale of books" in two
    assert "on the scale of" not in html


def test_a_failed_write_leaves_the_old_file_and_no_other(model, tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        report.write(model, path, force=True)
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
    assert path.read_text() == "old"


def test_write_makes_folders_and_returns_the_path(model, html, tmp_path):
    path = report.write(model, tmp_path / "new" / "report.html")
    assert path.read_text("utf-8") == html
    with pytest.raises(OutputError, match="is a folder"):
        report.write(model, tmp_path)


def test_only_fitted_models_with_clusters_have_a_report():
    with pytest.raises(NotFittedError, match="call fit"):
        report.render(PCLF())
    other = SimpleNamespace(_check_fitted=lambda: None)
    with pytest.raises(TypeError, match="FMM, RMGM or PCLF; got SimpleNamespace"):
        report.render(other)


def test_several_restarts_are_mentioned():
    model = small(n_restarts=2).fit(make_ratings(), engine="reference")
    assert "the first of 2 fits from different starts" in report.render(model)


def test_a_single_cluster_of_each_kind_has_a_page():
    model = small(n_user_clusters=1, n_common_clusters=1, n_specific_clusters=1, max_iter=3)
    model.fit(make_ratings(), engine="reference")
    html = report.render(model)
    assert "All pairs of user clusters and common clusters have the same mean rating" in html
    assert "All user clusters rank the common clusters alike" in html


CURVES = {"FMM": [(10, 0.90, 0.90, 0.90), (30, 0.60, 0.60, 0.60)],   # what PCLF is compared with
          "PCLF": [(10, 0.80, 0.75, 0.85), (30, 0.70, 0.65, 0.75)]}
PLOTS = {
    "fit_trace": lambda model, ax: plots.fit_trace(model, ax),
    "rating_matrix": lambda model, ax: plots.rating_matrix(model, 0, "books", ax),
    "shares": lambda model, ax: plots.shares(model, ax),
    "cluster_shares": lambda model, ax: plots.cluster_shares(model, "films", ax),
    "predicted_against_true": lambda model, ax: plots.predicted_against_true(model, "films", None, ax),
    "calibration": lambda model, ax: plots.calibration(model, None, ax),
    "learning_curve": lambda _, ax: plots.learning_curve(CURVES, ax),
    "affinity": lambda _, ax: plots.affinity({"books": {"films": 0.018}, "films": {"books": -0.001}}, ax),
}


@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_draws_on_the_axes_it_is_given_or_on_new_ones(name, model):
    from matplotlib.figure import Figure

    given = Figure(figsize=(5, 4)).subplots()
    assert PLOTS[name](model, given) is given
    assert len(given.get_title(loc="left").split()) >= 4
    new = PLOTS[name](model, None)
    new.figure.canvas.draw()   # a layout that does not fit warns, and warnings are errors
    assert new is not given
    assert new.get_title(loc="left")


def test_all_plots_are_public():
    assert set(plots.__all__) == set(PLOTS)
    assert all(callable(getattr(plots, name)) for name in plots.__all__)


def test_titles_state_what_the_numbers_say():
    model = fitted()
    model.set_common_weight("films", 0.2)
    model.set_common_weight("books", 0.75)
    title = plots.shares(model).get_title(loc="left")
    assert title.replace("\n", " ") == ("The common clusters carry 75\u00a0% of the prediction for books, "
                                        "20\u00a0% for films")


@pytest.mark.parametrize(("few", "many", "title"), [
    ((0.8, 0.75, 0.85), (0.7, 0.65, 0.75), "With few users PCLF has the lowest error, with many FMM"),
    ((0.8, 0.75, 0.85), (0.5, 0.45, 0.55), "With few users as with many, PCLF has the lowest error"),
    ((0.8, 0.75, 0.85), (0.59, 0.5, 0.7), "With few users PCLF has the lowest error, with many none clearly"),
    ((0.89, 0.8, 1.0), (0.5, 0.45, 0.55), "With many users PCLF has the lowest error, with few none clearly"),
    ((0.89, 0.8, 1.0), (0.61, 0.5, 0.7), "Neither with few users nor with many is one model clearly the best"),
])
def test_a_learning_curve_claims_no_winner_that_may_be_chance(few, many, title):
    ax = plots.learning_curve({"FMM": CURVES["FMM"], "PCLF": [(10, *few), (30, *many)]})
    assert ax.get_title(loc="left").replace("\n", " ") == title


@pytest.mark.parametrize(("significant", "title"), [
    (None, "Pooling changes books with films most: its error falls by 1.8 %, as measured"),
    ({"films": {"books": True}}, "Pooling changes films with books most: its error rises by 0.1 %"),
    ({}, "No change of an error by pooling two domains can be told from chance"),
])
def test_affinities_claim_no_gain_that_may_be_chance(significant, title):
    ax = plots.affinity({"books": {"films": 0.018}, "films": {"books": -0.001}}, significant=significant)
    assert ax.get_title(loc="left").replace("\n", " ") == title
    stars = sum(text.get_text().endswith("*") for text in ax.texts)
    assert stars == sum(map(len, (significant or {}).values()))


def test_a_heat_map_shows_every_mean_rating_of_the_matrix(model):
    ax = plots.rating_matrix(model, "common", "films")
    shown = ax.collections[0].get_array()
    np.testing.assert_allclose(np.sort(shown, axis=None), np.sort(model.rating_matrix(0, "films"), axis=None))
    assert sorted(text.get_text() for text in ax.texts) == sorted(f"{x:.1f}" for x in np.ravel(shown))


def test_unknown_views_and_domains_are_named(model):
    with pytest.raises(UnknownNameError, match="did you mean 'common'"):
        plots.rating_matrix(model, "comon")
    with pytest.raises(UnknownNameError, match="view must be 0 to 2"):
        plots.rating_matrix(model, 3)
    with pytest.raises(UnknownNameError, match="domain of this view"):
        plots.rating_matrix(model, "books", "films")


def test_like_stands_beside_like():
    blocks = np.kron(np.eye(3), np.ones((3, 3))) + 0.01 * np.random.default_rng(0).random((9, 9))
    mixed = np.random.default_rng(1).permutation(9)
    rows, columns = facts.seriation(blocks[np.ix_(mixed, mixed)])
    assert sorted(rows) == sorted(columns) == list(range(9))
    kinds = (mixed[rows] // 3).tolist()
    assert sum(a != b for a, b in pairwise(kinds)) == 2


def test_differences_divide_into_who_what_and_match():
    half = np.array([0.5, 0.5])
    assert facts.effects(np.array([[1.0, 1], [3, 3]]), half, half) == pytest.approx((1, 0, 0))
    assert facts.effects(np.array([[1.0, 3], [1, 3]]), half, half) == pytest.approx((0, 1, 0))
    assert facts.effects(np.array([[1.0, 3], [3, 1]]), half, half) == pytest.approx((0, 0, 1))
    assert facts.effects(np.array([[1.0, 2], [2, 3]]), half, half) == pytest.approx((0.5, 0.5, 0))


@pytest.mark.parametrize("kind", [FMM, RMGM, PCLF])
def test_shares_and_parts_add_up_to_one(kind):
    settings = {"factor_weight": 0.4} if kind is PCLF else {}
    model = small(kind, **settings).fit(make_ratings(), engine="reference")
    for name in model.data_.domains:
        assert sum(facts.parts(model, name).values()) == pytest.approx(1)
        assert facts.parts(model, name).get("factors", 0.0) == settings.get("factor_weight", 0.0)
        assert facts.user_shares(model)[name].sum() == pytest.approx(1)
    for view in range(len(model.layout_.views)):
        assert facts.pooled(model, facts.item_shares(model, view)).sum() == pytest.approx(1)


def test_nothing_imports_pyplot_and_importing_plots_does_not_import_matplotlib():
    code = ("import sys, pclf.plots, pclf.report\n"
            "assert 'matplotlib' not in sys.modules and 'jinja2' not in sys.modules\n"
            "ax = pclf.plots.affinity({'a': {'b': 0.1}})\n"
            "ax.figure.canvas.draw()\n"
            "assert 'matplotlib.pyplot' not in sys.modules")
    subprocess.run([sys.executable, "-c", code], check=True)


PROBE = """<script>
const box = document.documentElement;
const shown = what => [...document.querySelectorAll(what)].filter(e => !e.closest("details:not([open])"));
const leaves = [...document.querySelectorAll("h1, h2, h3, h4, p, table, .card, figure, figcaption")];
parent.document.title = JSON.stringify({
  width: innerWidth, content: box.scrollWidth,
  cut: leaves.filter(e => !e.closest(".scroll") && e.getBoundingClientRect().right > innerWidth + 1).length,
  headings: [...document.querySelectorAll("h2")].map(e => e.textContent),
  alts: [...document.querySelectorAll("figure svg[role=img]")].map(e => e.getAttribute("aria-label")),
  seen: shown("figure svg").map(e => e.getBoundingClientRect().width),
  letters: Math.min(...shown("svg text").map(e => e.getBoundingClientRect().height)),
});
</script>"""


def open_in_browser(html, folder, width, extra=""):
    """What a headless Chromium makes of a page: the probe's answers, and its console."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("no chromium on the PATH: apt install chromium")
    html = re.sub(r"<meta http-equiv[^>]*>", "", html)   # it forbids scripts, the probe among them
    html = html.replace("</body>", f"{extra}{PROBE}</body>")
    path = folder / f"page{width}.html"   # in a frame, since a window cannot be as narrow as a phone
    path.write_text(f'<!doctype html><meta charset="utf-8"><title></title><iframe srcdoc="{escape(html)}" '
                    f'style="border: 0; width: {width}px; height: 2000px"></iframe>', "utf-8")
    done = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
         "--enable-logging=stderr", f"--user-data-dir={folder / f'profile{width}'}",
         "--window-size=1400,2100", "--virtual-time-budget=2000", "--dump-dom", path.as_uri()],
        capture_output=True, text=True, timeout=120, check=True)
    title = re.search(r"<title>(.*?)</title>", done.stdout, re.DOTALL)[1]
    return json.loads(unescape(title)), [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def odd_names(_):
    names = ("films with a rather long name", "Donaudampfschifffahrtsgesellschaftskapitänsmützenbücher", "c")
    return fitted(n_domains=3, names=names)


def demo(_):
    return PCLF(8, 6, 6, n_restarts=1).fit(datasets.load("demo"))


def films_and_books(request):
    request.getfixturevalue("data_dir")
    data = Ratings(datasets.load("ml-100k").domains | datasets.load("goodbooks").domains)
    return PCLF(n_restarts=1, lists=False).fit(data)


@pytest.fixture(scope="module", params=[odd_names, demo, films_and_books], ids=lambda make: make.__name__)
def large_page(request):
    return report.render(request.param(request), audit=SimpleNamespace(verdicts=["Pooling helps."]))


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_shows_the_whole_page_without_a_complaint(width, large_page, tmp_path):
    seen, console = open_in_browser(large_page, tmp_path, width)
    page = Page(large_page)
    assert console == []
    assert seen["width"] == width
    assert seen["content"] <= width
    assert seen["cut"] == 0
    assert seen["headings"] == page.text["h2"]
    assert seen["alts"] == [svg["aria-label"] for svg in page.all("svg")]
    assert min(seen["seen"]) >= 300    # pixels
    assert seen["letters"] >= 8


@pytest.mark.slow
def test_the_browser_test_would_notice_an_error_and_an_overflow(html, tmp_path):
    wide = "<div style='width: 900px'>wide</div><script>nobody.home</script>"
    seen, console = open_in_browser(html, tmp_path, 390, extra=wide)
    assert seen["content"] > 390
    assert len(console) == 1


def test_a_report_of_events_speaks_of_events():
    rng = np.random.default_rng(0)
    log = Ratings.from_events({"plays": (rng.integers(0, 30, 200), rng.integers(0, 20, 200))})
    html = report.render(small(n_restarts=1).fit(log, engine="reference"))
    assert not re.findall(r".{20}\bratings?\b.{20}", re.sub(r"<style.*?</style>", "", html, flags=re.DOTALL))
    assert f"{log.n_ratings} events by 30 users" in html
    table = html[html.index('id="users"'):html.index('id="fit"')]
    assert "likes more" in table
    assert ">mean" not in table                              # of events, which are all 1
    assert "there is no event" in html
    model = small(n_restarts=1).fit(make_ratings(), engine="reference")
    assert (facts.decimals(model, next(iter(model.data_.domains))), facts.word(model.data_)) == (1, "rating")
