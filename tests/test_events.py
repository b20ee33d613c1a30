"""Events: logs without ratings, the absences they are trained with, lists and guests."""

import numpy as np
import pandas as pd
import pytest

import pclf
from pclf.data.events import DRAWN, absences, with_absences
from pclf.errors import DataError
from pclf.report import facts


def log_of_two_tastes(n_users=120, n_items=60, seed=0):
    """Users do things with even or with odd items, and stray now and then. (users, items), and each user's taste."""
    rng = np.random.default_rng(seed)
    taste = np.arange(n_users) % 2
    odds = np.where(taste[:, None] == np.arange(n_items) % 2, 0.4, 0.03)
    user, item = np.nonzero(rng.random((n_users, n_items)) < odds)
    return (user, item), taste


@pytest.fixture(scope="module")
def log():
    return pclf.Ratings.from_events({"shop": log_of_two_tastes()[0]})


@pytest.fixture(scope="module")
def model(log):
    return pclf.PCLF(n_restarts=1).fit(log)


def test_every_source_gives_the_same_log(tmp_path):
    users, items = ["ann", "ben", "ann", "ann"], [7, 7, 9, 7]
    frame = pd.DataFrame({"customer": users, "product": items, "when": [1, 2, 3, 4]})
    frame.to_csv(tmp_path / "log.csv", index=False)
    frame.to_parquet(tmp_path / "log.parquet")
    logs = [pclf.Ratings.from_events({"shop": source})
            for source in ((users, items), frame, tmp_path / "log.csv", str(tmp_path / "log.parquet"))]
    assert {data.fingerprint for data in logs} == {logs[0].fingerprint}
    shop = logs[0]["shop"]
    assert shop.events
    assert shop.sizes() == ["2 users", "2 items", "3 events"]      # who did something twice did it
    assert (shop.ratings == 1).all()
    assert logs[0].n_levels == 2


def test_a_file_without_names_is_user_and_item(tmp_path):
    (tmp_path / "log.tsv").write_text("3\t70\t881250949\n4\t71\t881250950\n")
    shop = pclf.Ratings.from_events({"shop": tmp_path / "log.tsv"})["shop"]
    assert (shop.users.ids, shop.items.ids) == ((3, 4), (70, 71))


def test_absences_are_pairs_without_events_each_of_them_once(log):
    shop = log["shop"]
    user, item = absences(shop.user, shop.item, shop.n_items, np.random.default_rng(0))
    drawn, done = (set(zip(u.tolist(), i.tolist(), strict=True)) for u, i in ((user, item), (shop.user, shop.item)))
    assert len(drawn) == len(user)
    assert not drawn & done
    assert 0.2 * DRAWN * len(shop) < len(user) <= DRAWN * len(shop)       # of so few items many are drawn twice
    everything = np.zeros(5, np.int32), np.arange(5, dtype=np.int32)
    assert len(absences(*everything, 5, np.random.default_rng(0))[0]) == 0


def test_only_domains_of_events_get_absences():
    rated = pclf.Ratings.from_arrays({"films": ([1, 2], [1, 1], [0, 1])}, scale=(0, 1))
    assert with_absences(rated, np.random.default_rng(0)).fingerprint == rated.fingerprint


def test_lists_follow_taste_and_leave_out_what_was_done(log, model):
    _, taste = log_of_two_tastes()
    shop, lists = log["shop"], model.recommend("shop", n=5)
    items = np.array(shop.items.ids)[lists.codes]
    own = items % 2 == taste[np.array(lists.users)][:, None]
    assert own.mean() > 0.9
    done = set(zip(shop.users.decode(shop.user), shop.items.decode(shop.item), strict=True))
    assert not {(u, i) for u, row in zip(lists.users, items.tolist(), strict=True) for i in row} & done


def test_the_model_keeps_the_log_and_not_the_absences(log, model, tmp_path):
    assert model.data_.fingerprint == log.fingerprint
    model.save(tmp_path / "model")
    again = pclf.load(tmp_path / "model")
    assert again.data_["shop"].events
    assert again.recommend("shop", 3) == model.recommend("shop", 3)
    guest = {"shop": [0, 2]}
    assert again.recommend("shop", again.fold_in(guest)) == model.recommend("shop", model.fold_in(guest))


def test_the_same_seed_draws_the_same_absences(log, model):
    again = pclf.PCLF(n_restarts=1).fit(log)
    np.testing.assert_array_equal(again.recommend("shop").scores, model.recommend("shop").scores)


def test_a_guest_is_a_list_of_things_done(model):
    evens = model.fold_in({"shop": [0, 2, 4, 6]})
    found = [r.item for r in model.recommend("shop", evens, n=8)]
    assert sum(i % 2 == 0 for i in found) >= 7
    assert not set(found) & {0, 2, 4, 6}
    same = model.fold_in({"shop": dict.fromkeys([0, 2, 4, 6], 1)})
    assert model.recommend("shop", same, n=8) == model.recommend("shop", evens, n=8)


def test_a_new_item_is_liked_by_those_who_are_like_its_users(model):
    newcomer = model.fold_in_item("shop", dict.fromkeys(range(0, 60, 2), 1))
    even, odd = model.predict("shop", [100, 101], newcomer)
    assert even > odd


def test_lists_of_held_out_events_can_be_compared(log):
    found = pclf.compare({"own": pclf.PCLF(n_restarts=1), "flat": pclf.FMM(1, 1, n_restarts=1)},
                         [pclf.hold_out(log, 0.2)], metrics=("ndcg@5",))
    own, flat = (s.value for s in found.scores)
    assert own > 1.3 * flat


@pytest.mark.parametrize("name", ["Bias", "NMF", "CBT", "TALMUD"])
def test_models_of_ratings_refuse_events(log, name):
    with pytest.raises(DataError, match=f"{name} learns from ratings, and 'shop' holds events"):
        getattr(pclf, name)().fit(log)


def test_wrong_logs_and_guests_are_refused_in_words(log, model):
    with pytest.raises(DataError, match=r"'shop' must be \(users, items\); got 3"):
        pclf.Ratings.from_events({"shop": ([1], [2], [5])})
    with pytest.raises(DataError, match="there must be a column like 'itemid'"):
        pclf.Ratings.from_events({"shop": pd.DataFrame({"user": [1], "colour": [2]})})
    rated = pclf.Ratings.from_arrays({"films": ([1, 2], [1, 2], [3, 4])}, scale=(1, 5))
    films = pclf.FMM(1, 1, n_restarts=1).fit(rated)
    with pytest.raises(ValueError, match=r"'films' must be given as \{item: rating\}"):
        films.fold_in({"films": [1]})
    with pytest.raises(ValueError, match=r"'shop' must be given as"):
        model.fold_in({"shop": "word"})


def test_a_report_of_events_is_written(model, tmp_path):
    assert "120 users" in model.report(tmp_path / "report.html").read_text()


def test_a_report_checks_events_among_absences(log):
    checked = facts.check(pclf.FMM(2, 2, n_restarts=1).fit(log), "shop")
    assert set(checked.levels) == {0, 1}
    assert checked.miscalibration < 0.2                          # of events alone it would be about a half


def test_events_beside_ratings_are_the_same_events():
    """A log among domains of five levels: absences are no choices there either."""
    rng = np.random.default_rng(0)
    pairs = np.unique(rng.integers(0, 60 * 30, 500))
    plays = pclf.Ratings.from_events({"songs": (pairs // 30, pairs % 30)})
    films = pclf.Ratings.from_arrays({"films": (pairs // 30, pairs % 30, pairs % 5 + 1)})
    alone, beside = (pclf.PCLF(3, 3, 3, n_restarts=1, max_iter=5, factor_weight=1.0).fit(data) for data in
                     (plays, pclf.Ratings({**films.domains, **plays.domains})))
    a, b = (model.factors_["songs"].domains["songs"] for model in (alone, beside))
    np.testing.assert_array_equal(a.count, b.count)
    np.testing.assert_array_equal(a.lift, b.lift)
    users = [int(u) for u in plays["songs"].user[plays["songs"].item == 3]]
    for model in (alone, beside):
        known, new = (model.predict("songs", list(range(60)), item).mean()
                      for item in (3, model.fold_in_item("songs", users)))
        assert new == pytest.approx(known, abs=0.1)


def test_popular_items_are_drawn_more_often_and_odds_do_not_show_it():
    """Probabilities are those among items drawn equally often: of each item, its events over events and draws."""
    rng = np.random.default_rng(0)
    n_users, n_items = 1500, 12
    chance = np.linspace(0.02, 0.9, n_items)
    user, item = np.nonzero(rng.random((n_users, n_items)) < chance)
    log = pclf.Ratings.from_events({"songs": (user, item)})
    model = pclf.PCLF(1, 1, 1, n_restarts=1, max_iter=3, factor_weight=1.0, n_factors=0).fit(log)
    codes = log["songs"].items.encode(range(n_items))
    found = model.predict_codes("songs", np.repeat(np.arange(200), n_items), np.tile(codes, 200)).reshape(200, -1)
    order = found.mean(axis=0)
    assert (np.diff(order) > 0).all()                              # as popular as they are
    again = with_absences(log, rng)["songs"]
    share = np.array([again.value[again.item == c].mean() for c in codes])
    np.testing.assert_allclose(order, share, atol=0.12)


def test_errors_of_events_are_refused_and_lists_are_the_default():
    rng = np.random.default_rng(0)
    log = pclf.Ratings.from_events({"songs": (rng.integers(0, 30, 300), rng.integers(0, 20, 300))})
    split = pclf.hold_out(log, 0.2)
    model = {"FMM": pclf.FMM(2, 2, n_restarts=1, max_iter=2)}
    assert {s.metric for s in pclf.compare(model, [split]).scores} == {"ndcg@10", "recall@10"}
    with pytest.raises(ValueError, match="mae measures predictions of ratings, and test events are all 1"):
        pclf.compare(model, [split], metrics=["ndcg@10", "mae"])


def test_what_was_done_in_training_is_no_absence_of_a_report(log):
    split = pclf.hold_out(log, 0.3)
    name = next(iter(log.domains))
    model = pclf.FMM(2, 2, n_restarts=1, max_iter=2).fit(split.train)
    checked = facts.check(model, name, split.test)
    test, train = split.test[name], split.train[name]
    drawn = with_absences(split.test.only(name), np.random.default_rng(0))[name]
    pairs, done = (d.user.astype(int) * d.n_items + d.item for d in (drawn, train))
    assert len(checked.truth) == len(test) + (~np.isin(pairs[drawn.value == 0], done)).sum() < len(drawn)


def test_a_log_gets_more_factors_than_ratings(log):
    quick = {"n_restarts": 1, "max_iter": 2}
    rated = pclf.Ratings.from_arrays({"a": ([1, 1, 2, 2], [1, 2, 1, 2], [1, 2, 3, 4])})
    sizes = []
    for data, more in ((log, {}), (log, {"n_factors": 5}), (rated, {})):
        (name, part), = pclf.PCLF(2, 2, 2, **quick, **more).fit(data).factors_.items()
        sizes.append(part.domains[name].users.shape[1])
    assert sizes == [1 + 20, 1 + 5, 3 + 12]
