"""The commands, one function each. Heavy imports happen inside, so that `pclf --help` answers at once."""

import difflib
import json
import math
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from pclf.cli import arguments, tables
from pclf.errors import UNSEEN, ArgumentError, brief, visible
from pclf.tables import Table

app = typer.Typer(
    name="pclf", invoke_without_command=True, rich_markup_mode=None, pretty_exceptions_enable=False,
    help="Recommendations that cross catalogues, such as films and books. They need no common users.",
    epilog="Start here: pclf demo. Every command but serve takes --json for scripts, and --debug for tracebacks.",
)

Files = Annotated[list[str], typer.Argument(metavar="DOMAIN=FILE...", help="Ratings of each domain: CSV, TSV or "
                                            "Parquet; DOMAIN=FILE:events for one without ratings. Or the name of one "
                                            "data set of `pclf datasets`.")]
ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="A file, or a folder, that `pclf fit` wrote.")]
DomainName = Annotated[str, typer.Option("--domain", "-d", help="The domain to score.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Seed = Annotated[int, typer.Option(min=0, help="The same seed gives the same result.")]
Engine = Annotated[str, typer.Option(help="auto, cpu, gpu, reference, or for files larger than memory disk or "
                                         "spark.")]
Threads = Annotated[int | None, typer.Option(help="CPU threads; all cores by default.")]
UserCol = Annotated[str | None, typer.Option(help="Column of user ids, or DOMAIN=COLUMN,...; guessed by default.")]
ItemCol = Annotated[str | None, typer.Option(help="Column of item ids, or DOMAIN=COLUMN,...; guessed by default.")]
RatingCol = Annotated[str | None, typer.Option(help="Column of ratings, or DOMAIN=COLUMN,...; guessed by default.")]
TimeCol = Annotated[str | None, typer.Option(help="Column of times, or DOMAIN=COLUMN,..., or auto to look for one; not "
                                             "read by default.")]
WeightCol = Annotated[str | None, typer.Option(help="Column of the strength of events (plays, hours), or "
                                               "DOMAIN=COLUMN,..., or auto; not read by default.")]
HalfLife = Annotated[float | None, typer.Option(help="Days after which an event counts half; needs --time-col.")]
ScaleOption = Annotated[list[str], typer.Option(help="DOMAIN=LOW-HIGH, such as books=1-10, or LOW:HIGH:STEP; "
                                                "inferred by default.")]
Encoding = Annotated[str, typer.Option(help="Encoding of text files, such as latin-1, or DOMAIN=ENCODING,...")]
UnknownIds = Annotated[str | None, typer.Option("--unknown", help="What to do about ids that the model does not know: "
                                                "skip (the default for tables), newcomer, or error (the default for "
                                                "one).")]
UserDomain = Annotated[str | None, typer.Option(help="Where to look the user up.")]
UserColumn = Annotated[str | None, typer.Option("--user-col", help="Column of users in the table; guessed by default.")]
ItemColumn = Annotated[str | None, typer.Option("--item-col", help="Column of items in tables; guessed by default.")]
Titles = Annotated[list[str], typer.Option(help="DOMAIN=FILE with item ids and a column `title`.")]
ItemAttributes = Annotated[list[str], typer.Option("--attributes", help="DOMAIN=FILE with item ids and what is known "
                                                   "about the items: genre, year, ...")]
UserAttributes = Annotated[list[str], typer.Option(help="DOMAIN=FILE, the same for users.")]
SharedUsers = Annotated[bool, typer.Option(help="The same user id in two domains is the same person.")]
SharedItems = Annotated[bool, typer.Option(help="The same item id in two domains is the same thing.")]
Events = Annotated[bool, typer.Option("--events", help="The files say who did what, without ratings.")]
Duplicates = Annotated[str, typer.Option(help="What to do with two ratings of one pair: error, last or mean.")]
Config = Annotated[Path | None, typer.Option(help="TOML file with settings named like these options.", is_eager=True,
                                             callback=arguments.use_config)]
SkipBad = Annotated[int, typer.Option(min=0, help="Rows with too many or too few fields that may be left out; they are "
                                      "counted and the first is shown.")]
Force = Annotated[bool, typer.Option("--force", help="Replace a file that is there, whatever it holds.")]
OutFile = Annotated[Path | None, typer.Option("--out", "-o", help="CSV or Parquet; stdout by default.")]


@app.callback()
def pclf(ctx: typer.Context,
         version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        from pclf import __version__

        print(__version__)
    elif ctx.invoked_subcommand is None:
        print(ctx.get_help())


@app.command(epilog="Example: pclf demo --seed 1")
def demo(seed: Seed = 0,
         files: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Write movies.csv, books.csv and what "
                                                    "is known about them there instead, to try commands on.")] = None,
         as_json: AsJson = False) -> None:
    """Fit three generated catalogues and recommend across them. A table compares what is predicted with the simplest
    ways to predict it."""
    if files is not None:
        from pclf.datasets.demo import write_files

        written = [str(path) for path in write_files(files, seed)]
        return _json(written) if as_json else print("\n".join(written))
    from pclf.cli import demo as story

    story.run(seed, as_json)


@app.command(epilog="Example: pclf datasets --json")
def datasets(as_json: AsJson = False) -> None:
    """List the data sets that pclf knows. It shows their sizes, licences and citations, and whether they are here."""
    from pclf import datasets as catalogue

    entries = [catalogue.info(name) for name in catalogue.names()]
    if as_json:
        return _json([{"name": e.name, "title": e.title, "domains": list(e.domains), "ratings": e.n_ratings,
                       "users": e.n_users, "items": e.n_items, "scale": e.scale, "licence": e.licence,
                       "citation": e.citation, "url": e.url, "here": e.here} for e in entries])
    Table(["name", "domains", "ratings", "users", "items", "scale", "here"],
          [[e.name, ", ".join(e.domains), f"{e.n_ratings:,}", f"{e.n_users:,}", f"{e.n_items:,}", e.scale,
            "yes" if e.here else ("download" if e.url else "by hand")] for e in entries], "Data sets").show()
    for e in entries:
        print(f"{e.name}: {e.title}. Licence: {e.licence}. {e.citation}")


@app.command(epilog="Example: pclf fit movies=movies.csv books=books.csv --out model")
def fit(files: Files, out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the model.")],
        model: Annotated[str, typer.Option(help="PCLF, RMGM, FMM, CBT, TALMUD, NMF, Bias, EASE or Popular.")] = "PCLF",
        user_clusters: Annotated[int | None, typer.Option(help="K, shared by all domains.")] = None,
        common_clusters: Annotated[int | None, typer.Option(help="T, item clusters of all domains (PCLF).")] = None,
        specific_clusters: Annotated[int | None, typer.Option(help="L, item clusters of each domain.")] = None,
        common_weight: Annotated[float | None, typer.Option(help="W1, from 0 to 1; learned by default.")] = None,
        factor_weight: Annotated[float | None, typer.Option(help="What factors say beside clusters, 0 to 1; learned by "
                                                            "default (PCLF).")] = None,
        lists: Annotated[bool | None, typer.Option(help="Learn what people choose (PCLF); on by default.")] = None,
        max_iter: Annotated[int | None, typer.Option(help="Most iterations of EM.")] = None,
        restarts: Annotated[int | None, typer.Option(help="Fits whose predictions are averaged.")] = None,
        set_to: Annotated[list[str], typer.Option("--set", metavar="NAME=VALUE", help="Any other setting of the model, "
                                                  "such as n_factors=16 or hyper.ridge=200.")] = [],  # noqa: B006
        engine: Engine = "auto", threads: Threads = None,
        work: Annotated[str | None, typer.Option(help="Folder for blocks of ratings (--engine disk or spark); the same "
                                                 "command goes on there after it was stopped.")] = None,
        memory: Annotated[str | None, typer.Option(help="What --engine disk may use, such as 4GB, half of what is free "
                                                   "by default; or a task of --engine spark.")] = None,
        master: Annotated[str | None, typer.Option(help="The Spark cluster, such as local[2] or spark://host:7077; "
                                                   "spark-submit names its own.")] = None,
        seed: Seed = 0, user_col: UserCol = None,
        item_col: ItemCol = None, rating_col: RatingCol = None, scale: ScaleOption = [],  # noqa: B006
        titles: Titles = [], attributes: ItemAttributes = [], user_attributes: UserAttributes = [],  # noqa: B006
        shared_users: SharedUsers = False, shared_items: SharedItems = False, duplicates: Duplicates = "error",
        encoding: Encoding = "utf-8", events: Events = False, time_col: TimeCol = None,
        weight_col: WeightCol = None, half_life: HalfLife = None, skip_bad: SkipBad = 0, config: Config = None,
        previous: Annotated[Path | None, typer.Option("--from", metavar="MODEL", help="Go on from this model of the "
                                                      "same domains, which is several times as fast.")] = None,
        add: Annotated[bool, typer.Option("--add", help="With --from: the files hold what is new, and the model's own "
                                          "ratings stay.")] = False,
        force: Force = False, as_json: AsJson = False) -> None:
    """Learn a model from files, and save it. Each domain has one file of ratings, or of events."""
    from pclf import models
    from pclf.atomic import check_target
    from pclf.data.update import updated
    from pclf.models.mixture import Mixture
    from pclf.storage import is_model

    settings: dict[str, Any] = {
        "n_user_clusters": user_clusters, "n_common_clusters": common_clusters,
        "n_specific_clusters": specific_clusters, "common_weight": common_weight, "factor_weight": factor_weight,
        "lists": lists, "max_iter": max_iter, "n_restarts": restarts, **arguments.settings(set_to)}
    if engine in ("disk", "spark"):
        described = arguments.rating_files(
            files, engine=engine, user_col=user_col, item_col=item_col, rating_col=rating_col, scale=scale,
            titles=titles, attributes=attributes, user_attributes=user_attributes, shared_users=shared_users,
            shared_items=shared_items, duplicates=duplicates, encoding=encoding, events=events, time_col=time_col,
            weight_col=weight_col, half_life=half_life)
        if previous is not None or add or skip_bad:
            raise typer.BadParameter(f"--engine {engine} goes without --from, --add and --skip-bad: leave them out.")
        if engine == "disk" and master is not None:
            raise typer.BadParameter("--master is for --engine spark: leave it out.")
        return _fit_on_disk(model, described, out, engine, threads, seed, work, memory, master, force, as_json,
                            settings)
    if out.is_dir():
        raise typer.BadParameter(f"--out must be a file; {out} is a folder.")
    if work is not None or memory is not None or master is not None:
        raise typer.BadParameter("--work, --memory and --master are for --engine disk and spark: leave them out.")
    check_target(out, None if force else is_model, "a model")
    before = models.load(previous) if previous is not None else None
    if before is None and add:
        raise typer.BadParameter("--add goes with --from MODEL, to which the files are added.")
    if before is not None:
        before._check_users_here("a model to go on from")
        model = type(before).__name__ if model == "PCLF" else model
    unfitted = _model(model, settings, before)                          # before files are read: they may be long
    if not isinstance(unfitted, Mixture) and (engine != "auto" or threads is not None):
        raise typer.BadParameter(f"{type(unfitted).__name__} has no engine and no threads to choose.")
    data = _read(files, user_col=user_col, item_col=item_col, rating_col=rating_col, scale=scale, titles=titles,
                 attributes=attributes, user_attributes=user_attributes, shared_users=shared_users,
                 shared_items=shared_items, duplicates=duplicates, encoding=encoding, events=events,
                 time_col=time_col, weight_col=weight_col, half_life=half_life, skip_bad=skip_bad)
    if before is not None and add:
        data = updated(before.data_, data)
    fitted = _fitted(unfitted, data, engine, threads, seed, before)
    fitted.save(out, force=force)
    row = {"model": type(fitted).__name__, "out": str(out), "ratings": data.n_ratings,
           "domains": {n: len(d) for n, d in data.domains.items()}, "iterations": getattr(fitted, "n_iter_", None)}
    if as_json:
        return _json(row)
    print(visible(f"{row['model']} of {data.n_ratings:,} {'events' if events else 'ratings'} in {len(data.domains)} "
                  f"domain(s) -> {out}"))


@app.command(epilog="Example: pclf tune movies=movies.csv --model NMF --trials 3 --out tuned.toml")
def tune(files: Files, out: Annotated[Path, typer.Option("--out", "-o", help="TOML file of settings, for `pclf fit "
                                                         "--config`; FILE.study beside it keeps the trials.")],
         model: Annotated[str, typer.Option(help="PCLF, RMGM, FMM or NMF.")] = "PCLF",
         trials: Annotated[int, typer.Option(min=1, help="At most so many, the defaults among them.")] = 20,
         seconds: Annotated[float | None, typer.Option(min=0, help="Begin no trial after so many.")] = None,
         seed: Seed = 0, user_col: UserCol = None, item_col: ItemCol = None, rating_col: RatingCol = None,
         scale: ScaleOption = [], attributes: ItemAttributes = [],  # noqa: B006
         user_attributes: UserAttributes = [], shared_users: SharedUsers = False,  # noqa: B006
         shared_items: SharedItems = False, duplicates: Duplicates = "error", encoding: Encoding = "utf-8",
         skip_bad: SkipBad = 0, config: Config = None, force: Force = False, as_json: AsJson = False) -> None:
    """Search for better settings of a model. It needs training ratings alone, and says whether the defaults are better.
    Run it again, and it goes on."""
    from pclf.atomic import check_target, replacing
    from pclf.evaluate.tuning import tunable
    from pclf.evaluate.tuning import tune as search

    tunable(model)
    check_target(out, None if force else lambda path: path.suffix == ".toml", "settings, in a file that ends in .toml")
    data = _read(files, user_col=user_col, item_col=item_col, rating_col=rating_col, scale=scale, attributes=attributes,
                 user_attributes=user_attributes, shared_users=shared_users, shared_items=shared_items,
                 duplicates=duplicates, encoding=encoding, time_col=None, weight_col=None, half_life=None,
                 skip_bad=skip_bad)
    found = search(data, model, n_trials=trials, seconds=seconds, path=f"{out}.study", seed=seed, progress=True,
                   say=_note)
    with replacing(out) as part:
        part.write_text(found.toml())
    if as_json:
        return _json({"out": str(out), "wins": found.wins, "best": found.best, "trials": found.n_trials,
                      "change_percent": found.change[:3]})
    print(visible(f"{found}\n-> {out}"))


@app.command("compare-models",
             epilog="Example: pclf compare-models model model --test movies=movies.csv --test books=books.csv")
def compare_models(old: Annotated[Path, typer.Argument(metavar="OLD", help="The model that is in use.")],
                   new: Annotated[Path, typer.Argument(metavar="NEW", help="The model that may take its place.")],
                   test: Annotated[list[str], typer.Option(help="DOMAIN=FILE of ratings, or events, that neither model "
                                                           "has seen; may be repeated.")],
                   user_col: UserCol = None, item_col: ItemCol = None, rating_col: RatingCol = None,
                   encoding: Encoding = "utf-8", as_json: AsJson = False) -> None:
    """Say which of two models is better on new ratings. They should be new to both models. It says whether to ship the
    new one."""
    from pclf import models
    from pclf.evaluate.shipping import compare_models as compared

    first, second = models.load(old), models.load(new)
    found = compared(first, second, arguments.read_like(first.data_, test, encoding, user_col, item_col, rating_col))
    return _json(found.to_dict()) if as_json else print(visible(str(found)))


@app.command(epilog="Example: pclf predict model --domain books --user 17 --item 'The Hobbit'")
def predict(model: ModelPath, domain: DomainName,
            user: Annotated[str | None, typer.Option(help="User id, of any domain.")] = None,
            item: Annotated[list[str], typer.Option(help="Item id or title; may be repeated.")] = [],  # noqa: B006
            pairs: Annotated[Path | None, typer.Option(help="A table with a column of users and one of items.")] = None,
            user_col: UserColumn = None, item_col: ItemColumn = None,
            rule: Annotated[str, typer.Option(help="mean (squared error) or median (absolute error).")] = "mean",
            user_domain: UserDomain = None, unknown: UnknownIds = None,
            out: OutFile = None, force: Force = False,
            as_json: AsJson = False) -> None:
    """Predict ratings for pairs of users and items."""
    import numpy as np
    import pyarrow as pa

    from pclf.data.columns import id_column

    fitted, target = _opened(model, domain, out, force)
    named = user is not None, bool(item)
    if any(named) != all(named) or all(named) == (pairs is not None):
        raise typer.BadParameter("give --user and --item, or --pairs FILE.")
    if pairs is not None:
        known = fitted._domain(user_domain or domain).users
        if fitted.users_ is not None:
            known = fitted.users_.some(user_domain or domain)
        users, items = arguments.read_pairs(pairs, known, target.items, user_col, item_col)
    else:
        items = [arguments.find_item(target, text) for text in item]
        users = [_find_user(fitted, domain, str(user), user_domain, unknown or "error")] * len(items)
    values = fitted.predict(domain, users, items, rule=rule, user_domain=user_domain,
                            unknown=unknown or ("error" if pairs is None else "skip"))
    columns = {"user_id": id_column(users), "item_id": id_column(items), "prediction": values}
    if target.titles is not None:
        columns["title"] = [target.title(int(code)) if code >= 0 else str(item)
                            for item, code in zip(items, target.find_items(items), strict=True)]
    _write(pa.table(columns).filter(pa.array(~np.isnan(values))), out, force, as_json)


@app.command(epilog="Example: pclf recommend model --domain books --guest movies:Alien=5,Heat=2 --n 5")
def recommend(model: ModelPath, domain: DomainName,
              user: Annotated[str | None, typer.Option(help="User id, of any domain.")] = None,
              guest: Annotated[list[str], typer.Option(help="DOMAIN:ITEM=RATING,... of somebody new; of events, "
                                                       "DOMAIN:ITEM,...")] = [],  # noqa: B006
              users: Annotated[Path | None, typer.Option(help="A table with a column of users to make lists "
                                                         "for.")] = None,
              everyone: Annotated[bool, typer.Option("--all", help="All users of the domain, or of "
                                                     "--user-domain.")] = False,
              n: Annotated[int, typer.Option("--n", "-n", help="Length of the list.", min=1)] = 10,
              rank_by: Annotated[str | None, typer.Option(help="liked (what they will pick and like), chosen (what they"
                                                          " will pick) or rating; by default the first of these that"
                                                          " the model has.")] = None,
              candidates: Annotated[Path | None, typer.Option(help="A table of the items to choose from.")] = None,
              exclude: Annotated[Path | None, typer.Option(help="A table of items to leave out.")] = None,
              user_col: UserColumn = None, item_col: ItemColumn = None,
              min_ratings: Annotated[int, typer.Option(min=0, help="Leave out items that have fewer ratings.")] = 0,
              diversity: Annotated[float, typer.Option(help="From 0, the best items, to 1, items unlike each "
                                                      "other.")] = 0.0,
              at_most: Annotated[list[str], typer.Option(help="ATTRIBUTE=N: at most N items that share a value, "
                                                         "such as genre=2.")] = [],  # noqa: B006
              explain: Annotated[bool, typer.Option(help="Say why the first item is recommended.")] = False,
              user_domain: UserDomain = None, unknown: UnknownIds = None,
              out: OutFile = None, force: Force = False,
              as_json: AsJson = False) -> None:
    """Recommend items of a domain to one person or to everybody. They may be users of any domain, or guests."""
    import numpy as np

    from pclf.data.events import AT_RANDOM
    from pclf.data.scale import written

    fitted, target = _opened(model, domain, out, force)
    if sum((user is not None, bool(guest), users is not None, everyone)) != 1:
        raise typer.BadParameter("give one of --user, --guest, --users and --all.")
    many = everyone or users is not None
    if many and explain:
        raise typer.BadParameter(f"--explain is for one person: leave out {'--all' if everyone else '--users'}.")
    allowed = arguments.read_items(candidates, target.items, item_col) if candidates else None
    left_out = arguments.read_items(exclude, target.items, item_col) if exclude else []
    shape: dict[str, Any] = {
        "rank_by": rank_by, "candidates": allowed, "exclude": left_out, "min_ratings": min_ratings,
        "diversity": diversity, "at_most": arguments.counts(at_most, "--at-most"), "user_domain": user_domain}
    if everyone and fitted.users_ is not None and out is not None:
        rows = tables.write_parts(_shown(fitted, domain, n, shape), out, force)
        return _json({"out": str(out), "rows": rows}) if as_json else print(visible(f"{rows:,} rows -> {out}"))
    if many:
        known = fitted._domain(user_domain or domain).users
        if fitted.users_ is not None:
            known = fitted.users_.some(user_domain or domain)
        asked = arguments.read_users(users, known, user_col) if users else None
        lists = fitted.recommend(domain, asked, n=n, unknown=unknown or "skip", **shape)
        return _write(lists.to_arrow(), out, force, as_json)
    if guest:
        if not hasattr(fitted, "fold_in"):
            raise ArgumentError(f"{type(fitted).__name__} cannot place guests: fit PCLF, RMGM or FMM.")
        person: Any = fitted.fold_in(arguments.guest_ratings(fitted.data_, guest))
    else:
        person = _find_user(fitted, domain, str(user), user_domain, unknown or "error")
    if explain and not hasattr(fitted, "explain"):
        raise ArgumentError(f"{type(fitted).__name__} cannot explain: fit PCLF, RMGM or FMM.")
    lists = fitted.recommend(domain, [person], n=n, unknown=unknown or "error", **shape)
    found = lists[0] if len(lists) else []
    why = fitted.explain(domain, person, found[0].item, user_domain=user_domain) if explain and found else None
    if as_json:
        if out is not None:
            tables.write(lists.to_arrow(), out, force)
        return _json({"domain": domain, "recommendations": [r._asdict() for r in found],
                      "explanation": str(why) if why else None})
    if out is not None:
        _write(lists.to_arrow(), out, force, as_json)
    else:
        digits = 2 if target.scale.n < 2 else max(2, 1 - math.floor(math.log10(min(np.diff(target.scale.values)))))
        rating = f"probability ({AT_RANDOM})" if target.events else f"expected rating (of {written(target.scale.high)})"
        columns: list[tuple[str, Any]] = []
        if found and found[0].liked is not None:
            columns = [("picks it", lambda r: f"{r.chosen:.1%}")]
            columns += [] if target.events else [("then likes it", lambda r: f"{r.liked / max(r.chosen, 1e-12):.0%}")]
        if not (columns and target.events) or rank_by == "rating":
            columns = [*columns, (rating, lambda r: f"{r.score if r.rating is None else r.rating:.{digits}f}")]
        Table(["", "item", *(name for name, _ in columns)],
              [[str(i), r.title, *(cell(r) for _, cell in columns)] for i, r in enumerate(found, 1)],
              f"{domain} for {'a guest' if guest else person}").show()
    if why:
        print(visible(f"\nWhy the first?\n{why}"))


@app.command(epilog="Example: pclf evaluate movies=movies.csv books=books.csv --protocol given-5")
def evaluate(files: Files,
             protocol: Annotated[str, typer.Option(help="given-N (new users), holdout-P (P percent), latest-P or "
                                                   "last-N (of each user); these need --time-col.")] = "given-10",
             models: Annotated[str | None, typer.Option(help="Models to compare, with commas; by default "
                                                        "Popular,EASE,Bias,FMM,RMGM,PCLF; no Bias for events.")] = None,
             repeats: Annotated[int, typer.Option(min=1, help="How many splits are drawn.")] = 3,
             seed: Seed = 0, user_col: UserCol = None, item_col: ItemCol = None, rating_col: RatingCol = None,
             scale: ScaleOption = [], attributes: ItemAttributes = [],  # noqa: B006
             user_attributes: UserAttributes = [], shared_users: SharedUsers = False,  # noqa: B006
             shared_items: SharedItems = False, duplicates: Duplicates = "error", encoding: Encoding = "utf-8",
             events: Events = False, time_col: TimeCol = None, weight_col: WeightCol = None, half_life: HalfLife = None,
             skip_bad: SkipBad = 0, config: Config = None, as_json: AsJson = False) -> None:
    """Compare models on held-out ratings of your data. Of events, lists are compared. Paired tests say what is sure."""
    from pclf.cli import reports

    reports.check(protocol, models)
    data = _read(files, user_col=user_col, item_col=item_col, rating_col=rating_col, scale=scale,
                 attributes=attributes, user_attributes=user_attributes, shared_users=shared_users,
                 shared_items=shared_items, duplicates=duplicates, encoding=encoding, events=events,
                 time_col=time_col, weight_col=weight_col, half_life=half_life, skip_bad=skip_bad)
    rows, text = reports.evaluate(data, protocol, models, repeats, seed)
    return _json(rows) if as_json else print(visible(text))


@app.command(epilog="Example: pclf audit movies=movies.csv books=books.csv --repeats 2")
def audit(files: Files,
          given: Annotated[int, typer.Option(min=1, help="Ratings, or events, that a held-out user keeps.")] = 10,
          repeats: Annotated[int, typer.Option(min=1, help="How many splits are drawn.")] = 5,
          seed: Seed = 0, user_col: UserCol = None, item_col: ItemCol = None, rating_col: RatingCol = None,
          scale: ScaleOption = [], attributes: ItemAttributes = [],  # noqa: B006
          user_attributes: UserAttributes = [], shared_users: SharedUsers = False,  # noqa: B006
          shared_items: SharedItems = False, duplicates: Duplicates = "error", encoding: Encoding = "utf-8",
          events: Events = False, time_col: TimeCol = None, weight_col: WeightCol = None, half_life: HalfLife = None,
          skip_bad: SkipBad = 0, config: Config = None, as_json: AsJson = False) -> None:
    """Measure whether pooling your domains helps. Each is predicted with and without the others, and against a shuffled
    control."""
    from pclf.engines.cpu import cores
    from pclf.evaluate.audit import audit as run_audit

    data = _read(files, user_col=user_col, item_col=item_col, rating_col=rating_col, scale=scale,
                 attributes=attributes, user_attributes=user_attributes, shared_users=shared_users,
                 shared_items=shared_items, duplicates=duplicates, encoding=encoding, events=events,
                 time_col=time_col, weight_col=weight_col, half_life=half_life, skip_bad=skip_bad)
    found = run_audit(data, given=given, repeats=repeats, seed=seed, n_jobs=cores(), progress=True)
    return _json(found.to_dict()) if as_json else print(visible(str(found)))


@app.command(epilog="Example: pclf reproduce --pair BC-ML --given 5 --repeats 2 --models BIAS,PCLF --out runs/small")
def reproduce(pair: Annotated[list[str], typer.Option(help="BC-EM, BC-ML or ML-EM; all by default.")] = [],  # noqa: B006
              given: Annotated[list[int], typer.Option(help="5, 10 or 15; all by default.")] = [],  # noqa: B006
              repeats: Annotated[int, typer.Option(min=1, help="New samples of users and items.")] = 10,
              models: Annotated[str, typer.Option(help="Systems, with commas.")] = "NMF,FMM,RMGM,PCLF,CBT,TALMUD,BIAS",
              preset: Annotated[str, typer.Option(help="paper (its settings), best (the defaults) or both.")] = "paper",
              out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder; a run goes on from there.")] = None,
              jobs: Annotated[int | None, typer.Option(min=1, help="Processes; one a core by default.")] = None,
              as_json: AsJson = False) -> None:
    """Repeat the paper's experiment on real data. It makes Tables 1 to 3 and the figure of weights."""
    from pclf.engines.cpu import cores
    from pclf.evaluate import paper, protocol

    found = paper.reproduce(pair or tuple(protocol.PAIRS), given or protocol.GIVENS, repeats,
                            [name.strip().upper() for name in models.split(",")], preset, out, n_jobs=jobs or cores(),
                            progress=True)
    if as_json:
        return _json(found.rows)
    print(found)
    if out is not None:
        _note(f"tables, tests and figures: {out}")


@app.command(epilog="Example: pclf report model --out report.html")
def report(model: ModelPath,
           out: Annotated[Path, typer.Option("--out", "-o", help="The HTML file to write.")] = Path("report.html"),
           force: Force = False, as_json: AsJson = False) -> None:
    """Write one self-contained HTML page about a fitted model."""
    from pclf import models
    from pclf.models.mixture import Mixture
    from pclf.report import write

    fitted = models.load(model)
    if not isinstance(fitted, Mixture):
        raise ArgumentError(f"a report needs PCLF, RMGM or FMM; {model} holds {type(fitted).__name__}.")
    fitted._check_users_here("a report")
    path = write(fitted, out, force=force)
    return _json({"out": str(path), "bytes": path.stat().st_size}) if as_json else print(visible(f"report -> {path}"))


@app.command(epilog="Example: pclf serve model --db sqlite:///shop.db --refit-after 1000")
def serve(model: Annotated[Path | None, typer.Argument(metavar="[MODEL]", help="A file that `pclf fit` wrote; without "
                                                       "it, the version that was served last.")] = None,
          db: Annotated[str | None, typer.Option(help="sqlite:///FILE or postgresql://USER@HOST/NAME; by default "
                                                 "sqlite:///pclf.db.")] = None,
          models: Annotated[str, typer.Option(help="Folder of the model versions; beside the database by "
                                              "default.")] = "",
          demo: Annotated[bool, typer.Option("--demo", help="Serve the demo's three catalogues.")] = False,
          host: Annotated[str, typer.Option(help="Where to listen. Others than this machine need keys.")] = "127.0.0.1",
          port: Annotated[int, typer.Option(min=1, max=65535)] = 8000,
          workers: Annotated[int, typer.Option(min=1, help="Processes that answer.")] = 1,
          refit_every: Annotated[float, typer.Option(min=0, help="Hours between refits; 0 for never.")] = 24.0,
          refit_after: Annotated[int, typer.Option(min=0, help="New ratings that bring a refit on; 0 for none.")] = 0,
          tolerance: Annotated[float, typer.Option(min=0, help="By what share a refit may be worse.")] = 0.01,
          max_body: Annotated[int, typer.Option(min=1, help="Bytes of a request.")] = 1 << 20,
          max_n: Annotated[int, typer.Option(min=1, help="Places of a list.")] = 100,
          max_batch: Annotated[int, typer.Option(min=1, help="Rows of a batch.")] = 1_000,
          rate: Annotated[float, typer.Option(min=0, help="Requests a second of one client; 0 for any.")] = 0.0,
          cors: Annotated[list[str], typer.Option(help="An origin whose pages may ask; may be repeated.")] = [],  # noqa: B006
          log_ids: Annotated[bool, typer.Option("--log-ids", help="Write ids of people into the log.")] = False,
          log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
          new_key: Annotated[str | None, typer.Option(help="read or write: make a key, show it, and stop.")] = None,
          seed: Seed = 0) -> None:
    """Answer over HTTP, and learn from what people say. The model is fitted again by night, and there is a page to look
    at."""
    from pclf.cli import serve as service

    settings = {"db": db or ("sqlite:///pclf-demo.db" if demo else "sqlite:///pclf.db"), "models": models, "host": host,
                "port": port, "workers": workers, "refit_every": refit_every, "refit_after": refit_after,
                "tolerance": tolerance, "max_body": max_body, "max_n": max_n, "max_batch": max_batch, "rate": rate,
                "cors": tuple(cors), "log_ids": log_ids, "log_level": log_level}
    if new_key is not None:
        return print(service.new_key(settings, new_key))
    service.run(settings, model, demo, seed)


@app.command(epilog="Example: pclf bench --quick --json")
def bench(quick: Annotated[bool, typer.Option("--quick", help="The main figures, in under 90 seconds.")] = False,
          out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder to append JSON lines to.")] = None,
          as_json: AsJson = False) -> None:
    """Measure the speed of this installation on this machine."""
    from pclf import bench as benchmarks

    rows = (benchmarks.quick if quick else benchmarks.full)(progress=True)
    if out is not None:
        benchmarks.write(rows, out)
    if as_json:
        return _json(rows)
    lines = []
    for row in rows:
        what = row["name"] if row["data"] == "synthetic" else f"{row['name']}, {row['data']}"
        numbers = (1e3 * row["seconds"], 1e3 * row["spread"], row["updates_per_s"] / 1e6, row["peak_bytes_per_rating"],
                   row["ratio"])
        lines.append([what, f"{row['ratings']:,}", str(row["clusters"]), str(row["threads"]), *map(_short, numbers),
                      row["against"]])
    Table(["what", "ratings", "C", "threads", "ms", "± ms", "M/s", "bytes a rating", "ratio", "of"], lines,
          "Speed (--json has more columns)").show()


@app.command(epilog="Example: pclf doctor")
def doctor(as_json: AsJson = False) -> None:
    """Say what is installed and which engines work here. It also shows threads, memory, and the data sets that it
    found."""
    from pclf.cli import reports

    rows = reports.doctor()
    if as_json:
        return _json(rows)
    width = max(map(len, rows))
    for name, value in rows.items():
        print(visible(f"{name:<{width}}  {value}"))


def _shown(fitted: Any, domain: str, n: int, shape: dict[str, Any]) -> Any:
    """Lists of everybody, a part of the users at a time, with a bar."""
    from pclf.progress import progress

    with progress("recommend", fitted.users_.people.catalogue.n_parts, unit="parts") as advance:
        for lists in fitted.users_.lists(fitted, domain, n, shape):
            yield lists.to_arrow()
            advance(1)


def _fit_on_disk(name: str, files: Any, out: Path, engine: str, threads: int | None, seed: int, work: str | None,
                 memory: str | None, master: str | None, force: bool, as_json: bool, settings: dict[str, Any]) -> None:
    """A model of files larger than memory, written to a folder, by this machine or by a Spark cluster."""
    from pclf.models import disk
    from pclf.models.mixture import Mixture

    model = _model(name, settings)
    if not isinstance(model, Mixture):
        raise typer.BadParameter(f"{type(model).__name__} has no engine to choose.")
    if work is None:
        raise typer.BadParameter(f"--engine {engine} needs --work FOLDER, for its blocks, and to go on from.")
    disk.check_folder(out, force)
    if engine == "spark":
        from pclf.spark import begin

        begin(master)
    model.fit(files, engine=engine, n_threads=threads, random_state=seed, verbose=True, work=work, memory=memory)
    model.save(out, force=force)
    n = model.users_.people.catalogue.n_ratings
    row = {"model": type(model).__name__, "out": str(out), "ratings": n, "iterations": model.n_iter_,
           "domains": {name: d.totals.ratings for name, d in model.data_.domains.items()}}   # type: ignore[attr-defined]
    if as_json:
        return _json(row)
    what = "events" if model.data_.events else "ratings"
    print(visible(f"{row['model']} of {n:,} {what} in {len(model.data_.domains)} domain(s) -> {out}"))


def _fitted(model: Any, data: Any, engine: str, threads: int | None, seed: int, before: Any) -> Any:
    """A fitted model, which goes on from another where that is given."""
    from pclf.models.mixture import Mixture

    if not isinstance(model, Mixture):
        return model.fit(data, random_state=seed)
    model.fit(data, engine=engine, n_threads=threads, random_state=seed, verbose=True, previous=before)
    if model.interrupted_:
        raise KeyboardInterrupt
    return model


def _model(name: str, settings: dict[str, Any], before: Any = None) -> Any:
    """A model with these settings: those that were not given are those of the model before it, if there is one, or the
    defaults, and unknown ones are refused."""
    from pclf import models

    given = {key: value for key, value in settings.items() if value is not None}
    model = models.create(name, **({} if before is None or type(before).__name__.lower() != name.lower()
                                   else before.get_params()))
    known = model.get_params()
    if "n_item_clusters" in known and "n_specific_clusters" in given:      # all of them are a domain's own
        given["n_item_clusters"] = given.pop("n_specific_clusters")
    for key in given:
        if key not in known:
            what, guess = key.removeprefix("n_").replace("_", " "), difflib.get_close_matches(key, known, 1)
            raise typer.BadParameter(f"{type(model).__name__} has no {what}"
                                     f"{f': did you mean {guess[0]}?' if guess else '.'} It has {', '.join(known)}.")
    return model.set_params(**given)


def _opened(model: Path, domain: str, out: Path | None, force: bool) -> tuple[Any, Any]:
    """A model and a domain of it, once it is known that what it says can be written."""
    from pclf import models

    tables.check(out, force)
    fitted = models.load(model)
    return fitted, fitted._domain(domain)


def _find_user(fitted: Any, domain: str, text: str, user_domain: str | None, unknown: str) -> Any:
    """The id that was typed, from the domain asked for or, failing that, from any."""
    if fitted.users_ is not None:
        fitted = next(fitted.users_.by_part(fitted, [text]))[0]
    homes = [user_domain] if user_domain else [domain, *(n for n in fitted.data_.domains if n != domain)]
    for name in homes:
        known = fitted._domain(name).users
        for candidate in arguments.readings(text):
            if candidate in known:
                return candidate
    return text if unknown != "error" else arguments.find_id(fitted._domain(homes[0]).users, text,
                                                             f"user in {homes[0]!r}")


def _read(files: list[str], *, titles: list[str] | None = None, events: bool = False, **options: Any) -> Any:
    """The ratings that were asked for; what was understood goes to stderr."""
    data = arguments.read_ratings(files, titles=titles or [], events=events, **options)
    _note(_preview(data))
    return data


def _preview(data: Any) -> str:
    """What was understood: sizes, scales, and the first rating of each domain."""
    from pclf.data.scale import written

    lines = [repr(data)]
    for d in data.domains.values():
        user, item = d.users.decode(d.user[:1])[0], d.title(int(d.item[0]))
        kind, rating = ("event", "") if d.events else ("rating", f", rating {written(d.ratings[0])}")
        lines.append(f"  {d.name}, first {kind}: user {brief(user)}, item {brief(item)}{rating}")
    return "\n".join(lines)


def _write(table: Any, out: Path | None, force: bool, as_json: bool) -> None:
    """To a file, if one was asked for, and as JSON; to the screen if neither."""
    if out is not None:
        tables.write(table, out, force)
    if as_json:
        _json(table.to_pylist())
    elif out is not None:
        print(visible(f"{table.num_rows:,} rows -> {out}"))
    else:
        Table(table.column_names, [[_cell(v) for v in row.values()] for row in table.to_pylist()]).show()


def _short(x: float) -> str:
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}"


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) >= 10_000 else f"{value:.4g}"
    return "" if value is None else str(value)


def _json(value: Any) -> None:
    text = json.dumps(_finite(value), indent=None if not sys.stdout.isatty() else 2, default=_plain,
                      ensure_ascii=False, allow_nan=False)
    print(UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text))      # the rest JSON has made harmless


def _finite(value: Any) -> Any:
    """JSON has no word for NaN and infinity: null."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)


def _note(text: str) -> None:
    print(visible(text), file=sys.stderr)
