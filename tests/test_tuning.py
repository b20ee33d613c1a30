"""Tuning: a search on training ratings that says when the defaults win, and goes on where it was stopped."""

import json
import subprocess
import sys
import tomllib

import numpy as np
import pytest

import pclf
from pclf import datasets
from pclf.cli import arguments
from pclf.errors import ArgumentError, DataError, UnknownNameError
from pclf.evaluate import tuning
from pclf.evaluate.significance import Effect

pytest.importorskip("optuna")


@pytest.fixture(scope="module")
def data():
    return datasets.load("demo").only(["films"])


def test_a_search_keeps_to_its_budget_and_goes_on_where_it_was_stopped(data, tmp_path):
    path, said = tmp_path / "study", []
    first = tuning.tune(data, "NMF", n_trials=3, path=path, say=said.append)
    assert first.n_trials == 3
    assert len(said) == 1
    assert "at most 3 of them" in said[0]
    fits = []
    real = tuning._errors

    def counted(*given):
        fits.append(given)
        return real(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "_errors", counted)
        again = tuning.tune(data, "NMF", n_trials=4, path=path)
    assert again.n_trials == 4
    judged = 2 * tuning.JUDGED if again.best else 0
    assert len(fits) == tuning.SPLITS + judged                       # one trial more, and the last word
    assert tuning.tune(data, "NMF", n_trials=50, seconds=0).n_trials == 1


def test_the_same_seed_finds_the_same_settings(data):
    one, two = (tuning.tune(data, "NMF", n_trials=4, seed=3) for _ in range(2))
    assert (one.best, one.change) == (two.best, two.change)


def test_settings_that_are_better_win_and_others_do_not(data, monkeypatch):
    """A model that is hopeless by default is beaten; where nothing is gained, the defaults stay."""
    real, hopeless = tuning.models.create, {"n_user_clusters": 1, "n_item_clusters": 1, "n_restarts": 1}
    monkeypatch.setattr(tuning.models, "create", lambda name, **given: real(name, **(hopeless | given)))
    found = tuning.tune(data, "RMGM", n_trials=4)
    assert found.wins
    assert found.settings == found.best
    assert "Use them: -" in str(found)
    monkeypatch.setattr(tuning.models, "create", lambda name, **given: real(name))          # whatever is asked for
    same = tuning.tune(data, "NMF", n_trials=3)
    assert not same.wins
    assert same.settings == {}
    assert str(same) == "The defaults win: they were the best of 3 trials."


def test_the_last_word_is_spoken_on_ratings_that_no_trial_was_measured_on(data):
    tested = [set(np.flatnonzero(split.parts["films"] == 2).tolist()) for split in tuning._tenths(data, 0)]
    assert len(set.union(*tested)) == sum(map(len, tested))


def test_what_was_found_becomes_settings_of_fit(tmp_path):
    found = tuning.Tuned("PCLF", {"n_factors": 16, "hyper.ridge": 120.5}, Effect(-2.0, -3.0, -1.0, 0.01, 0.01), 9, 1.0)
    table = tomllib.loads(found.toml())["fit"]
    assert table == {"model": "PCLF", "set": {"n_factors": 16, "hyper": {"ridge": 120.5}}}
    assert arguments.settings(["n_factors=16", "hyper.ridge=120.5"]) == found.settings
    model = pclf.models.create("PCLF", **found.settings)
    assert (model.n_factors, model.hyper) == (16, {"ridge": 120.5})


def test_what_cannot_be_tuned_is_said(data, tmp_path):
    with pytest.raises(UnknownNameError, match="did you mean 'NMF'"):
        tuning.tune(data, "NMFF")
    with pytest.raises(DataError, match="got events"):
        tuning.tune(pclf.Ratings.from_events({"plays": ([1, 2], [1, 1])}))
    tuning.tune(data, "NMF", n_trials=1, path=tmp_path / "study")
    with pytest.raises(ArgumentError, match="must be a study of the same model, ratings and seed"):
        tuning.tune(data, "NMF", n_trials=1, path=tmp_path / "study", seed=1)


def test_from_files_to_settings_to_a_model(tmp_path):
    rows = [f"{u},{i},{1 + (u * i + u) % 5}" for u in range(40) for i in range(12)]
    (tmp_path / "r.csv").write_text("\n".join(["user_id,item_id,rating", *rows]) + "\n")

    def run(*words):
        return subprocess.run([sys.executable, "-m", "pclf", *words], capture_output=True, text=True, cwd=tmp_path)

    done = run("tune", "films=r.csv", "--model", "NMF", "--trials", "2", "--out", "t.toml", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["trials"] == 2
    assert "a trial takes about" in done.stderr
    (tmp_path / "s.toml").write_text('[fit]\nmodel = "NMF"\n[fit.set]\nn_factors = 3\n')
    done = run("fit", "films=r.csv", "--config", "s.toml", "--out", "m")
    assert done.returncode == 0, done.stderr
    assert pclf.load(tmp_path / "m").n_factors == 3
    done = run("fit", "films=r.csv", "--set", "n_factor=3", "--out", "m")
    assert "PCLF has no factor: did you mean n_factors? It has" in done.stderr
