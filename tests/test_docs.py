"""Docs: what is shown runs, prints what is shown, and speaks of names that exist."""

import difflib
import importlib.util
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pclf
from pclf import datasets, engines, models
from pclf.data.ratings import Options
from pclf.factors.hyper import Hyper
from pclf.models.base import Recommender
from pclf.models.mixture import Mixture
from pclf.serving.lists import Recommendations

ROOT = Path(__file__).resolve().parents[1]
NEEDS = {"films_to_books": ("ml-1m", "goodbooks"), "overlap": ("douban",)}
EXAMPLES = sorted(file.stem for file in (ROOT / "examples").glob("*.py"))
SLOW = ("audit", "films_to_books", "overlap")
CLOSE = 0.6   # of two texts without their numbers: other machines may swap two books, not tell another story

pytestmark = pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="the documentation is not here")


def load_refresh():
    spec = importlib.util.spec_from_file_location("refresh", ROOT / "docs" / "refresh.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["refresh"] = module
    spec.loader.exec_module(module)
    return module


refresh = load_refresh() if (ROOT / "docs").is_dir() else None
PAGES = refresh.pages() if refresh else []


def alike(shown: str, printed: str) -> float:
    """How alike two outputs are, from 0 to 1, whatever the numbers in them and the spaces that align them."""
    a, b = (re.findall(r"\w+|\S", re.sub(r"[-+]?\d[\d.,]*", "#", text)) for text in (shown, printed))
    return difflib.SequenceMatcher(None, a, b, autojunk=False).ratio()


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_snippets_run_and_print_what_the_page_shows(page):
    shown = refresh.blocks(page.read_text(encoding="utf-8"))
    for before, after in zip(shown, refresh.run(page, examples=False), strict=True):
        if after.printed is not None:
            assert alike(before.body, after.printed) >= CLOSE, (
                f"{named(page)} shows\n{before.body}\nand now it prints\n{after.printed}\n"
                f"If that is meant: python docs/refresh.py {named(page)}")


def test_pages_show_output_wherever_something_is_printed():
    """An empty block means that somebody forgot to run docs/refresh.py."""
    for page in PAGES:
        for block in refresh.blocks(page.read_text(encoding="utf-8")):
            assert block.body.strip(), f"{named(page)} has an empty {block.language} block"


def test_every_word_of_make_that_a_page_or_a_workflow_names_is_there():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    there = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    files = [*PAGES, ROOT / "CONTRIBUTING.md", *(ROOT / ".github" / "workflows").glob("*.yml"), ROOT / ".ci" / "run"]
    named = {(file.name, word) for file in files if file.exists()
             for words in re.findall(r"(?:`|\$ |run: |^ {4}|^|then )make((?: [\w.-]+(?:=\S+)?)+)(?=`| {2}|\n|;)",
                                     file.read_text(encoding="utf-8"), re.MULTILINE)
             for word in words.split() if "=" not in word}
    assert {"check", "test", "lowest", "attack"} <= {word for _, word in named}
    assert {(file, word) for file, word in named if word not in there} == set()


def test_where_there_is_no_make_the_same_tests_run():
    """On Windows a workflow says what `make test` runs."""
    of_make = re.search(r"^test:.*\n\t@\$\(DATA\) \$\(BIN\)/(python -m pytest .*)$",
                        (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert f"- run: {of_make[1]}\n" in (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")


def test_readme_leads_from_two_files_to_a_recommendation_in_three_commands():
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    block = next(b for b in refresh.blocks(page) if b.language == "console" and "pclf fit" in b.body)
    assert [line.split()[1:3] for line in refresh._commands(block.body)] == [
        ["pip", "install"], ["pclf", "fit"], ["pclf", "recommend"]]


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in EXAMPLES])
def test_example_prints_what_the_docs_show(name):
    missing = [d for d in NEEDS.get(name, ()) if not datasets.info(d).here]
    printed = refresh.run_example(f"examples/{name}.py")
    if missing:
        assert "This example needs" in printed
        pytest.skip(f"no {' and '.join(missing)} here: set PCLF_DATA")
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    shown = next(b.body for b in refresh.blocks(page)
                 if b.language == "console" and f"examples/{name}.py" in b.body)
    assert alike(shown.split("\n", 1)[1], printed) >= CLOSE, (
        f"examples/{name}.py now prints\n{printed}\nIf that is meant: python docs/refresh.py docs/examples.md")


def test_example_without_its_data_says_what_it_needs(monkeypatch, tmp_path):
    for name in ("PCLF_DATA", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    assert "set PCLF_DATA" in refresh.run_example("examples/overlap.py")


def test_documentation_builds_without_warnings(tmp_path):
    pytest.importorskip("mkdocs", reason="the documentation needs pip install -e '.[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "fold_in" in (tmp_path / "site" / "reference" / "index.html").read_text(encoding="utf-8")


PUBLIC = {
    "Ratings": pclf.Ratings, "RatingFiles": pclf.RatingFiles, "Scale": pclf.Scale, "Split": pclf.Split,
    "Recommender": Recommender,
    "Recommendations": Recommendations, "Hyper": Hyper, **{name: getattr(pclf, name) for name in models.NAMES},
}
FUNCTIONS = {
    **{f"pclf.{f.__name__}": f for f in (pclf.given_n, pclf.hold_out, pclf.user_folds, pclf.compare, pclf.audit,
                                         pclf.load)},
    "datasets.load": datasets.load, "datasets.info": datasets.info, "engines.create": engines.create,
    "models.create": models.create, "evaluate.reproduce": pclf.evaluate.reproduce,
    **{f"{name}.{key}": value for name, cls in PUBLIC.items() for key, value in inspect.getmembers(cls, callable)
       if not key.startswith("_") and (value.__module__ or "").startswith("pclf")},
}


def parameters(function) -> set[str]:
    """The names a function can be called with; those of `Options` where it takes these."""
    names = set(inspect.signature(function).parameters)
    return names | set(Options.__annotations__) if "options" in names else names


def documented(text: str) -> list[str]:
    """The names that a docstring explains as `name: ...` or `name, name: ...` at the start of a sentence."""
    found = re.findall(r"(?:^|\n|\. )\s*([a-z]\w*(?:, [a-z]\w*)*): ", inspect.cleandoc(text))
    return [name for group in found for name in group.split(", ")]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_docstring_names_parameters_that_exist(name):
    unknown = set(documented(FUNCTIONS[name].__doc__ or "")) - parameters(FUNCTIONS[name])
    assert not unknown, f"the docstring of {name} explains {unknown}, which it does not take"


@pytest.mark.parametrize("name", models.NAMES)
def test_class_docstring_names_settings_that_exist(name):
    cls = getattr(pclf, name)
    unknown = set(documented(cls.__doc__)) - set(cls._get_param_names())
    assert not unknown, f"the docstring of {name} explains {unknown}, which are no settings"


def test_documented_finds_names_where_docstrings_put_them():
    assert documented("Get it.\n\nusers, items: ids. rule: the way.\n  n: how many") == ["users", "items", "rule", "n"]


def test_pages_speak_of_arguments_that_exist():
    """`name=` and `name=value` in the running text is an argument of something public."""
    known = set().union(*(parameters(f) for f in FUNCTIONS.values()),
                        *(parameters(cls.__init__) for cls in PUBLIC.values()), parameters(Mixture.report))
    for page in PAGES:
        text = refresh.FENCE.sub("", page.read_text(encoding="utf-8"))
        calls = " ".join(re.findall(r"`([^`\n]+)`", text))
        for name in re.findall(r"(?<![-\w])([a-z_]+)=(?!=)", calls):
            assert name in known or name in ("movies", "books", "films", "genre"), f"{named(page)} speaks of {name}="


def test_settings_have_the_defaults_that_the_guide_lists():
    guide = (ROOT / "docs" / "guides" / "clusters.md").read_text(encoding="utf-8")
    settings = pclf.PCLF().get_params()
    for line in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| ([^|]+) \|", guide, re.MULTILINE):
        names = re.findall(r"\w+", line[0])
        defaults = [part.strip(" `\"") for part in line[1].split(",")]
        for name, default in zip(names, defaults, strict=True):
            value = settings[name]
            same = float(default) == value if type(value) in (int, float) else default == str(value)
            assert same, f"the guide says that {name} is {default}; it is {value}"


def test_models_show_what_they_are_and_what_they_learned():
    data = datasets.load("demo").only(["films", "books"])
    model = pclf.PCLF(common_weight=0.25, factor_weight=0.6, n_restarts=1, max_iter=3)
    assert repr(model) == "PCLF(common_weight=0.25, factor_weight=0.6, max_iter=3, n_restarts=1)"
    assert "not fitted" in model._repr_html_()
    model.fit(data)
    first, films, books = repr(model).splitlines()
    assert first.endswith("fitted in 3 iterations")
    parts = "factors 60 %, common clusters 10 %, its own clusters 30 %"
    assert films == f"  films  300 users  180 items  9,775 ratings  {parts}"
    assert "240 users" in books
    assert f"<td>{parts}</td>" in model._repr_html_()
    assert model._repr_mimebundle_()["text/html"] == model._repr_html_()


def test_models_show_names_of_domains_as_text():
    data = pclf.Ratings.from_arrays({"<b>": ([1, 2], [1, 1], [1, 5])}, scale=(1, 5))
    assert "<td>&lt;b&gt;</td>" in pclf.Bias().fit(data)._repr_html_()


def test_formulas_are_shown_without_a_network():
    """What mkdocs makes of a formula becomes MathML, and no page asks for a script from elsewhere."""
    pytest.importorskip("latex2mathml")
    spec = importlib.util.spec_from_file_location("formulas", ROOT / "docs" / "formulas.py")
    formulas = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(formulas)
    page = (r'<span class="arithmatex">\(a &lt; b\)</span><div class="arithmatex">\[\frac{1}{\beta}\]</div>')
    made = formulas.on_page_content(page)
    assert (made.count("<math"), "arithmatex" in made) == (2, False)
    assert "<mfrac>" in made
    assert "http" not in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
