"""Spark: the same fit on a cluster, through dead executors and dead drivers, and lists and predictions by executors.

The cluster is a real one on this machine: a master and two workers, each with an executor of one core.
"""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from test_disk import CLOSE, GOOD, MODELS, catalogues, facts, fitted, table, with_factors, with_lists, written

import pclf
from pclf.errors import ArgumentError, DataError, EngineError, OutputError, UnknownNameError
from pclf.models import disk

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="no pyspark: pip install 'pclf[spark]'"),
    pytest.mark.skipif(shutil.which("java") is None, reason="no Java: apt-get install openjdk-17-jre-headless"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),       # pyspark leaves sockets to the garbage collector
]
SMALL = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.driver.memory": "512m",
         "spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.cores.max": "2",
         "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.log.level": "OFF"}
PEOPLE = (True, False)
SHORT = {"bridges": ("people",), "max_iter": 2, "hyper": {"sweeps": 2}, "lists": True}
FEW = 6          # iterations: each is a job of Spark


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    """A session on a standalone cluster that is started here."""
    import pyspark
    from pyspark.sql import SparkSession

    folder, port = tmp_path_factory.mktemp("cluster"), free_port()
    jars = str(Path(pyspark.__file__).parent / "jars" / "*")
    env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(Path(pyspark.__file__).parent),
           "PYSPARK_PYTHON": sys.executable, "SPARK_WORKER_DIR": str(folder), "SPARK_SCALA_VERSION": "2.13"}

    def java(name, *words):
        with (folder / "log").open("a") as log:
            return subprocess.Popen(["java", "-Xmx256m", "-cp", jars, f"org.apache.spark.deploy.{name}", *words],
                                    env=env, stdout=log, stderr=log)

    master = f"spark://127.0.0.1:{port}"
    daemons = [java("master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"),
               *(java("worker.Worker", "--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "600m",
                      master) for _ in range(2))]
    with pytest.MonkeyPatch.context() as patch:
        for name in ("SPARK_LOCAL_IP", "PYSPARK_PYTHON"):
            patch.setenv(name, env[name])
        builder = SparkSession.builder.master(master).appName("tests")
        for name, value in SMALL.items():
            builder = builder.config(name, value)
        try:
            session = builder.getOrCreate()
            yield session
            session.stop()
        finally:
            for daemon in daemons:
                daemon.terminate()
                daemon.wait()


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def frames_of(session, arrays):
    names = ["user_id", "item_id", "rating"]
    return {name: session.createDataFrame(pa.table(dict(zip(names, columns, strict=True)))).repartition(3)
            for name, columns in arrays.items()}


def by_spark(session, model, data, work, n_parts=8, n_blocks=3, **options):
    from pclf.spark.cluster import Executors

    disk.fit(model, data, work=work, memory=None, n_parts=n_parts, n_blocks=n_blocks, workers=Executors(session),
             **{"dtype": "float32", "n_threads": None, "random_state": 0, "verbose": False, "callbacks": (), **options})
    return model


def by_item(arrays):
    """The same ratings in the order of items, in which Spark gives codes to these."""
    return {name: tuple(map(list, zip(*sorted(zip(*columns, strict=True), key=lambda row: row[1]), strict=True)))
            for name, columns in arrays.items()}


def fast():
    return pclf.PCLF(6, 4, 5, common_weight=0.4, factor_weight=0, lists=False, n_restarts=1, max_iter=FEW)


def said(model, arrays):
    """Predictions that two fits are compared by."""
    return [model.predict(name, user[:300], item[:300]) for name, (user, item, _) in arrays.items()]


@pytest.fixture(scope="module")
def small(spark, tmp_path_factory):
    """A model that Spark fitted to two domains with people in common, and where it is."""
    folder, arrays = tmp_path_factory.mktemp("small"), catalogues(*PEOPLE)
    files = pclf.RatingFiles(written(folder / "in", arrays), shared_users=True)
    return by_spark(spark, fast(), files, folder / "work"), arrays, folder


@pytest.mark.parametrize(("name", "shared", "n"), [("PCLF", PEOPLE, 12), ("RMGM", (True, True), 12),
                                                   ("PCLF.paper", (False, False), 25)], ids=["people", "both", "apart"])
def test_spark_predicts_what_disk_and_memory_do(name, shared, n, spark, tmp_path):
    """After whole fits; from frames, in any order of rows; and five blocks, added up by executors, as two on disk."""
    arrays = catalogues(*shared)
    options = {"shared_users": shared[0], "shared_items": shared[1]}
    frames = pclf.spark.RatingFrames(frames_of(spark, arrays), **options)
    five = by_spark(spark, MODELS[name]().set_params(max_iter=n), frames, tmp_path / "work", n_parts=10, n_blocks=5)
    two = fitted(MODELS[name]().set_params(max_iter=n), pclf.RatingFiles(written(tmp_path / "in", arrays), **options),
                 tmp_path / "disk", n_parts=10, n_blocks=2)
    plain = MODELS[name]().set_params(max_iter=n)
    whole = plain.set_params(start=f"{plain.start} by id").fit(pclf.Ratings.from_arrays(arrays, **options), n_threads=1)
    for of_spark, of_disk, of_memory in zip(*(said(m, arrays) for m in (five, two, whole)), strict=True):
        assert of_memory.std() > 0.1, "a model that says the same of everything would agree with anything"
        assert np.abs(of_spark - of_disk).max() < CLOSE
        assert np.abs(of_spark - of_memory).max() < CLOSE
    assert five.trace_[-1].objective == pytest.approx(whole.trace_[-1].objective, rel=1e-5)


def test_factors_learned_by_executors_are_those_of_disk_and_memory(spark, tmp_path):
    """From frames, with people and attributes in common."""
    arrays = by_item(catalogues(*PEOPLE))
    options = {"shared_users": True, "attributes": facts(arrays)}
    settings = {"bridges": ("people", "attributes"), "max_iter": 2, "hyper": {"sweeps": 3}}
    frames = pclf.spark.RatingFrames(frames_of(spark, arrays), **options)
    three = by_spark(spark, with_factors(**settings), frames, tmp_path / "work", n_parts=10, n_blocks=3)
    two = fitted(with_factors(**settings), pclf.RatingFiles(written(tmp_path / "in", arrays), **options),
                 tmp_path / "disk", n_parts=10, n_blocks=2)
    whole = with_factors(**settings, start="memberships by id").fit(pclf.Ratings.from_arrays(arrays, **options),
                                                                    n_threads=1)
    for of_memory, *others in zip(*(said(m, arrays) for m in (whole, two, three)), strict=True):
        assert of_memory.std() > 0.1, "a model that says the same of everything would agree with anything"
        for other in others:
            assert np.abs(other - of_memory).max() < CLOSE


def test_events_learned_by_executors_are_those_of_disk_and_memory(spark, tmp_path):
    """Clusters and lists of events with strengths, beside ratings by the same people."""
    arrays = by_item(catalogues(*PEOPLE))
    options = {"events": ("books",), "weight_col": "rating", "shared_users": True}
    frames = pclf.spark.RatingFrames(frames_of(spark, arrays), **options)
    paths = written(tmp_path / "in", arrays)
    three = by_spark(spark, with_factors(**SHORT), frames, tmp_path / "work", n_parts=10, n_blocks=3)
    two = fitted(with_factors(**SHORT), pclf.RatingFiles(paths, **options), tmp_path / "disk", n_parts=10, n_blocks=2)
    whole = with_factors(**SHORT, start="memberships by id").fit(pclf.Ratings.from_files(paths, **options), n_threads=1)
    for of_memory, *others in zip(*(said(m, arrays) for m in (whole, two, three)), strict=True):
        assert of_memory.std() > 0.01, "a model that says the same of everything would agree with anything"
        for other in others:
            assert np.abs(other - of_memory).max() < CLOSE
    users = list(dict.fromkeys(arrays["films"][0]))
    want, *got = (m.recommend("books", users, n=10).scores for m in (whole, two, three))
    assert all(np.abs(scores - want).max() < CLOSE for scores in got)
    assert three.data_["books"].usual_strength == whole.data_["books"].usual_strength


def test_lists_learned_by_executors_are_those_of_disk(spark, tmp_path, monkeypatch):
    """People and things shared; the answers of blocks added up by the driver, and by executors, who make lists, too."""
    options = {"shared_users": True, "shared_items": True}
    arrays = by_item(catalogues(True, True))
    files = pclf.RatingFiles(written(tmp_path / "in", arrays), **options)
    want = fitted(with_lists(max_iter=2), files, tmp_path / "disk", n_parts=10, n_blocks=2)
    got = by_spark(spark, with_lists(max_iter=2), files, tmp_path / "work", n_parts=10, n_blocks=3)
    monkeypatch.setattr("pclf.spark.cluster.FEW", 0)
    monkeypatch.setattr("pclf.blocks.choices.Spread.room", 500)
    again = by_spark(spark, with_lists(max_iter=2), files, tmp_path / "again", n_parts=10, n_blocks=3)
    users = list(dict.fromkeys(arrays["films"][0]))
    lists = want.recommend("books", users, n=10)
    for model in (got, again):
        assert model.lists_.choice.settings == want.lists_.choice.settings
        own = model.recommend("books", users, n=10)
        assert np.abs(own.scores - lists.scores).max() < CLOSE
        assert (own.codes == lists.codes).mean() > 0.99
    made = pclf.spark.recommend(got, "books", n=3).toArrow().to_pylist()
    score = {(row["user_id"], row["rank"]): row["score"] for row in made}
    few = got.recommend("books", n=3)
    assert len(score) == 3 * len(few)
    assert all(score[user, 1] == pytest.approx(found[0].score, abs=1e-9) for user, found in few.items())


def test_answers_added_up_by_executors_are_those_added_up_by_the_driver(spark, monkeypatch):
    from pclf.spark import cluster

    def answer(b):
        rng = np.random.default_rng(b)
        return [rng.normal(size=(3, 50_000)).astype(np.float32), rng.normal(size=2)]

    like = [np.zeros((3, 50_000), np.float32), np.zeros(2)]
    answers = [cluster.added(spark, answer, 4, like)]
    monkeypatch.setattr(cluster, "FEW", 0)
    answers.append(cluster.added(spark, answer, 4, like))
    expected = [np.zeros_like(x) for x in like]
    for b in range(4):
        for whole, own in zip(expected, answer(b), strict=True):
            whole += own
    for found in answers:
        assert all(np.array_equal(x, y) for x, y in zip(found, expected, strict=True)), "to the last bit"


def test_an_executor_killed_in_mid_iteration_changes_no_bit(spark, small, tmp_path):
    model, arrays, folder = small
    killed = []

    def kill(step):
        if step.iteration == 3:
            killed.append(step)
            executors = subprocess.run(["pgrep", "-f", f"CoarseGrainedExecutorBackend.*{spark_app(spark)}"],
                                       capture_output=True, text=True, check=False).stdout.split()
            assert executors, "no executor to kill"
            subprocess.Popen(["sh", "-c", f"sleep 0.02; kill -9 {executors[0]}"])       # in the iteration that follows

    files = pclf.RatingFiles({name: str(folder / "in" / name) for name in arrays}, shared_users=True)
    again = by_spark(spark, fast(), files, tmp_path / "work", callbacks=[kill])
    assert killed
    assert all(np.array_equal(x, y) for x, y in zip(said(again, arrays), said(model, arrays), strict=True))


def spark_app(session):
    """The name of its application, which executors have among their words."""
    return session.conf.get("spark.app.id")


@pytest.mark.skipif(sys.platform == "win32", reason="no kill -9 here")
def test_a_killed_driver_goes_on_with_the_same_bits(spark, small, tmp_path):
    """The driver dies with its cluster; another one goes on in the same folder."""
    model, arrays, folder = small
    paths = {name: str(folder / "in" / name) for name in arrays}
    script = textwrap.dedent(f"""
        import pclf
        from pclf.models import disk
        from pclf.spark import begin
        from pclf.spark.cluster import Executors
        model = pclf.PCLF(6, 4, 5, common_weight=0.4, factor_weight=0, lists=False, n_restarts=1, max_iter={FEW})
        disk.fit(model, pclf.RatingFiles({paths!r}, shared_users=True), work={str(tmp_path / "work")!r}, memory=None,
                 n_parts=8, n_blocks=3, dtype="float32", n_threads=None, random_state=0, verbose=False,
                 callbacks=[lambda step: print(step.iteration, flush=True)], workers=Executors(begin("local[1]")))
    """)
    running = subprocess.Popen([sys.executable, "-W", "ignore", "-c", script], stdout=subprocess.PIPE, text=True,
                               stderr=subprocess.DEVNULL, start_new_session=True)
    for line in running.stdout:
        if line.strip() == "3":
            os.killpg(running.pid, signal.SIGKILL)
            break
    running.wait()
    running.stdout.close()
    steps = []
    files = pclf.RatingFiles(paths, shared_users=True)
    again = by_spark(spark, fast(), files, tmp_path / "work", callbacks=[lambda s: steps.append(s.seconds)])
    assert all(np.array_equal(x, y) for x, y in zip(said(again, arrays), said(model, arrays), strict=True))
    assert again.trace_[2].seconds < again.trace_[-1].seconds


def test_lists_are_those_of_the_model(small, spark):
    model, arrays, _ = small
    users = list(dict.fromkeys(arrays["books"][0]))
    want = {(user, rank): (r.item, r.title) for user, found in model.recommend("books", users, n=3).items()
            for rank, r in enumerate(found, 1)}
    got = pclf.spark.recommend(model, "books", n=3)
    assert got.columns == ["user_id", "item_id", "title", "score", "rank"]
    assert {(r.user_id, r.rank): (r.item_id, r.title) for r in got.collect()} == want
    some = pclf.spark.recommend(model, "books", users[:5], n=3).collect()
    assert {(r.user_id, r.rank): (r.item_id, r.title) for r in some} == {
        key: value for key, value in want.items() if key[0] in users[:5]}


def test_predictions_of_pairs_are_those_of_the_model(small, spark):
    model, arrays, _ = small
    users, items = (column[:40] for column in arrays["films"][:2])
    frame = spark.createDataFrame(pa.table({"userId": users, "movieId": items}))
    got = {(r.user_id, r.item_id): r.rating for r in pclf.spark.predict(model, "films", frame).collect()}
    want = model.predict("films", users, items)
    assert [got[pair] for pair in zip(users, items, strict=True)] == pytest.approx(want.tolist(), abs=1e-6)


def test_the_folder_of_the_model_opens_anywhere(small, tmp_path):
    model, arrays, folder = small
    loaded = pclf.load(folder / "work" / "model")
    assert all(np.array_equal(x, y) for x, y in zip(said(loaded, arrays), said(model, arrays), strict=True))
    with pytest.raises(ArgumentError, match="in memory"):
        pclf.spark.recommend(pclf.RMGM(2, 2, n_restarts=1, max_iter=2).fit(pclf.Ratings.from_arrays(arrays)), "books")


@pytest.mark.parametrize(("bad", "message"), [
    (([3, None], ["a", "b"], [5, 3]), r"'films', partition \d: user ids must not be missing; got none in row \d"),
    (([3, 4], ["a", "b"], [5, 9]), r"'films', partition \d: ratings must be on the scale 1 to 5 by 1; got 9 in row \d"),
    (([3.5, 4.0], ["a", "b"], [5, 3]), r"'films', partition \d: user ids must be whole numbers or text"),
    (([2, 2], ["b", "b"], [5, 3]), r"user 2 rates item 'b' again in row \d of partition \d. Pass duplicates"),
], ids=["missing", "scale", "fractions", "twice"])
def test_bad_rows_are_refused_with_the_partition_where_they_are(bad, message, spark, tmp_path):
    frame = spark.createDataFrame(pa.table(dict(zip(("user_id", "item_id", "rating"), bad, strict=True)))).coalesce(1)
    with pytest.raises(DataError, match=message):
        by_spark(spark, pclf.RMGM(2, 2), pclf.spark.RatingFrames({"films": frame}, scale=(1, 5)), tmp_path / "work",
                 n_parts=1, n_blocks=1)
    assert not (tmp_path / "work" / "blocks").exists(), "nothing half written"


def test_frames_that_cannot_be_fitted_are_refused(spark, small, tmp_path):
    _, _, folder = small
    frame = spark.createDataFrame(pa.table({"who": [1], "item_id": [2], "rating": [3]}))
    with pytest.raises(DataError, match="frame of 'films': there must be a column like 'userid'"):
        pclf.RMGM(2, 2).fit({"films": frame}, work=tmp_path / "work")
    good = spark.createDataFrame(pa.table(dict(zip(("user_id", "item_id", "rating"), GOOD, strict=True))))
    with pytest.raises(DataError, match=r"films.* must have at least one row"):
        pclf.RMGM(2, 2).fit({"films": good.where("user_id > 9")}, work=tmp_path / "work")
    with pytest.raises(UnknownNameError, match="unknown domain 'film' in events: did you mean 'films'"):
        pclf.spark.RatingFrames({"films": good}, events=["film"])
    with pytest.raises(ArgumentError, match="engine 'spark' needs a folder"):
        pclf.RMGM(2, 2).fit({"films": good})
    with pytest.raises(ArgumentError, match="Mount the bucket"):
        pclf.RMGM(2, 2).fit({"films": good}, work="s3://bucket/night")
    with pytest.raises(OutputError, match="blocks of other files"):
        pclf.RMGM(2, 2).fit({"films": good}, work=folder / "work")
    from pclf.blocks.work import Work

    with Work.open(folder / "work"), pytest.raises(OutputError, match="used by another run"):
        pclf.RMGM(2, 2).fit({"films": good}, work=folder / "work")


def test_executors_with_another_pclf_or_none_are_named(spark, monkeypatch):
    from pclf.spark import cluster

    with pytest.raises(EngineError, match=r"executors must have pclf .*; they have no module 'nowhere_to_be_found'"):
        cluster.added(spark, lambda b: [importlib.import_module("nowhere_to_be_found").zeros(1)], 1, [np.zeros(1)])
    monkeypatch.setattr(cluster, "__version__", "99.0")
    with pytest.raises(EngineError, match=r"must have the pclf of the driver, 99\.0; the one on .* has"):
        cluster.added(spark, lambda b: [np.zeros(1)], 1, [np.zeros(1)])


def test_the_command_line_fits_from_folders_and_so_does_spark_submit(small, tmp_path):
    """CSV, whose ids are numbers where all of them are written so."""
    model, arrays, _ = small
    paths = written(tmp_path / "in", arrays, "csv")
    words = ["fit", *(f"{name}={path}" for name, path in paths.items()), "--engine", "spark", "--shared-users",
             "--factor-weight", "0", "--no-lists", "--user-clusters", "6", "--common-clusters", "4",
             "--specific-clusters", "5", "--common-weight", "0.4", "--max-iter", str(FEW), "--restarts", "1"]
    env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    first = [sys.executable, "-m", "pclf", *words, "--master", "local[1]", "--work", tmp_path / "work", "--out",
             tmp_path / "model"]
    done = subprocess.run(list(map(str, first)), env=env, capture_output=True, text=True, check=False)
    assert "PCLF of 6,000 ratings in 2 domain(s)" in done.stdout, done.stderr[-2000:]
    (tmp_path / "job.py").write_text("from pclf.cli import main\nmain()\n")
    second = [Path(sys.executable).parent / "spark-submit", "--master", "local[1]", tmp_path / "job.py", *words,
              "--work", tmp_path / "submitted", "--out", tmp_path / "other"]
    done = subprocess.run(list(map(str, second)), env=env, capture_output=True, text=True, check=False)
    assert "PCLF of 6,000 ratings in 2 domain(s)" in done.stdout, done.stderr[-2000:]
    for made in (tmp_path / "model", tmp_path / "other"):
        for got, want in zip(said(pclf.load(made), arrays), said(model, arrays), strict=True):
            assert np.abs(got - want).max() < CLOSE


@pytest.mark.skipif(importlib.util.find_spec("grpc") is None, reason="no grpc: pip install 'pyspark[connect]'")
def test_spark_connect_does_the_same_where_there_is_no_spark_context(small, tmp_path):
    """In a process whose session is a client: whatever asked it for sparkContext would fail."""
    model, arrays, folder = small
    paths = {name: str(folder / "in" / name) for name in arrays}
    script = textwrap.dedent(f"""
        import pclf, pyarrow as pa
        from pyspark.sql import SparkSession
        session = SparkSession.builder.remote("local[1]").getOrCreate()
        try:
            session.sparkContext
        except Exception as error:
            print("without:", type(error).__name__)
        paths = {paths!r}
        frames = {{name: session.read.parquet(path) for name, path in paths.items()}}
        model = pclf.PCLF(6, 4, 5, common_weight=0.4, factor_weight=0, lists=False, n_restarts=1, max_iter={FEW})
        model.fit(pclf.spark.RatingFrames(frames, shared_users=True), engine="auto", work={str(tmp_path / "work")!r})
        print("lists:", pclf.spark.recommend(model, "books", n=2).count())
    """)
    env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], env=env, capture_output=True, text=True,
                          check=False)
    assert "without:" in done.stdout, done.stderr[-2000:]
    assert f"lists: {2 * len(set(arrays['books'][0]))}" in done.stdout, done.stderr[-2000:]
    again = pclf.load(tmp_path / "work" / "model")
    for got, want in zip(said(again, arrays), said(model, arrays), strict=True):
        assert np.abs(got - want).max() < CLOSE


@pytest.mark.parametrize(("duplicates", "expected"), [("last", 4.0), ("mean", 3.0)])
def test_repeated_pairs_are_merged(duplicates, expected, spark, tmp_path):
    paths = table(tmp_path / "in", a=([1, 2, 1, 1], ["a", "b", "b", "a"], [2, 3, 1, 4]))
    files = pclf.RatingFiles(paths, scale=(1, 5), duplicates=duplicates)
    model = by_spark(spark, pclf.RMGM(1, 1, n_restarts=1, max_iter=2), files, tmp_path / "work", 1, 1)
    domain = model.users_.model(model, 0).data_["films"]
    rating = {(domain.users.ids[u], domain.items.ids[i]): r for u, i, r in zip(
        domain.user, domain.item, domain.ratings, strict=True)}
    assert len(domain) == 3
    assert rating[1, "a"] == expected
