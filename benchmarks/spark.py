"""Spark: our fit beside MLlib's ALS and beside one machine without Spark, in one run, and the lists of both.

    python benchmarks/spark.py --folder /some/disk --millions 16 --master 'local[2]' --memory 4g

Data are those of benchmarks/disk.py: two catalogues with text ids in Parquet parts, 100 ratings a user, of which one in
twenty is held out by a hash. ALS gets them with integer ids, which it needs and which are made before its clock starts; it
sees one catalogue at a time, ours both. CPU is that of all processes of the run: the driver, the JVM and its Python
workers, so executors must be on this machine. One JSON line goes to benchmarks/results/spark.jsonl.
"""

import argparse
import json
import os
import platform
import shutil
import sys
import time
from pathlib import Path

import numpy as np
from disk import CATALOGUES, N_FACTORS, generate

RESULTS = Path(__file__).parent / "results" / "spark.jsonl"
ITERATIONS = 6
RANK = 10
HELD_OUT = 20       # one rating in so many
SWEEPS = 3
SETTINGS = {"common_weight": 0.35, "factor_weight": 1.0, "lists": False, "n_restarts": 1, "max_iter": ITERATIONS,
            "n_factors": N_FACTORS, "hyper": {"sweeps": SWEEPS}, "neighbours": False}


def seconds_of_cpu(used={}):  # noqa: B006    # of processes that have ended, what was seen of them last
    """Of this process and everything below it, living and dead."""
    ticks, parents, living = os.sysconf("SC_CLK_TCK"), {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, _, rest = stat.read_text().partition(" (")
        except OSError:                                    # it has just ended
            continue
        fields = rest.rpartition(")")[2].split()
        parents[int(pid)], living[int(pid)] = int(fields[1]), sum(map(int, fields[11:13])) / ticks
    family, grown = {os.getpid()}, True
    while grown:
        found = {pid for pid, parent in parents.items() if parent in family} - family
        family, grown = family | found, bool(found)
    used.update({pid: living[pid] for pid in family})
    return sum(used.values())


class Clock:
    """Wall and CPU of what is done within."""

    def __enter__(self):
        self.began = time.perf_counter(), seconds_of_cpu()
        return self

    def __exit__(self, *_):
        self.wall, self.cpu = time.perf_counter() - self.began[0], seconds_of_cpu() - self.began[1]


def split(session, folder):
    """Frames to learn from and held-out frames of both catalogues, in Parquet, as text and as integers."""
    from pyspark.sql import functions as f

    out = {}
    for name in CATALOGUES:
        made = folder / "split" / name
        if not (made / "done").exists():
            rows = session.read.parquet(str(folder / name)).withColumn("rating", f.col("rating").cast("double"))
            rows = rows.withColumn("user", f.regexp_extract("user_id", r"(\d+)$", 1).cast("int")).withColumn(
                "item", f.regexp_extract("item_id", r"(\d+)$", 1).cast("int"))
            held = f.pmod(f.xxhash64("user_id", "item_id"), f.lit(HELD_OUT)) == 0
            rows.where(~held).write.mode("overwrite").parquet(str(made / "train"))
            rows.where(held).write.mode("overwrite").parquet(str(made / "test"))
            (made / "done").touch()
        out[name] = [session.read.parquet(str(made / kind)) for kind in ("train", "test")]
    return out


def rmse(rows):
    from pyspark.sql import functions as f

    return float(rows.agg(f.sqrt(f.avg((f.col("rating") - f.col("prediction")) ** 2))).first()[0])


def steps_of(fit):
    """Median wall and CPU of an iteration, and of what comes before the first."""
    wall, cpu = [time.perf_counter()], [seconds_of_cpu()]

    def step(_):
        wall.append(time.perf_counter())
        cpu.append(seconds_of_cpu())

    model = fit([step])
    return model, {"iteration": float(np.median(np.diff(wall)[1:])), "iteration_cpu": float(np.median(np.diff(cpu)[1:])),
                   "read": wall[1] - wall[0], "read_cpu": cpu[1] - cpu[0]}


def sweeps_of(raters):
    """Wall and CPU at the end of each sweep of the factors, from now on."""
    wall, cpu, plain = [], [], raters.swept

    def swept(*arguments):
        plain(*arguments)
        wall.append(time.perf_counter())
        cpu.append(seconds_of_cpu())

    raters.swept = swept
    return lambda: {"sweep": float(np.median(np.diff(wall))), "sweep_cpu": float(np.median(np.diff(cpu)))}


def ours(session, frames, work, n_lists):
    import pclf
    from pclf.blocks.factors import Spread

    sweeps = sweeps_of(Spread)
    train = pclf.spark.RatingFrames({name: own[0].select("user_id", "item_id", "rating") for name, own in frames.items()},
                                    scale={name: (1, high) for name, (_, high) in CATALOGUES.items()})
    model, out = steps_of(lambda callbacks: pclf.PCLF(20, 10, 15, **SETTINGS).fit(
        train, engine="spark", work=work, callbacks=callbacks))
    out |= sweeps()
    users = session.read.parquet(str(work.parent / "split" / "films" / "train")).select("user_id").distinct().limit(n_lists)
    with Clock() as clock:
        pclf.spark.recommend(model, "films", users, 10).write.mode("overwrite").parquet(str(work.parent / "lists-ours"))
    out |= {"lists": clock.wall, "lists_cpu": clock.cpu}
    for name, (_, test) in frames.items():
        said = pclf.spark.predict(model, name, test.select("user_id", "item_id"), unknown="newcomer")
        joined = said.withColumnRenamed("rating", "prediction").join(test, ["user_id", "item_id"])
        out[f"rmse_{name}"] = rmse(joined)
    return out


def one_machine(folder, work, threads):
    """The same fit in this process, from the same Parquet, all in memory."""
    import pclf
    from pclf.factors.learn import Here

    sweeps = sweeps_of(Here)
    paths = {name: str(folder / "split" / name / "train") for name in CATALOGUES}
    data = pclf.Ratings.from_files(paths, user_col="user_id", item_col="item_id",
                                   scale={name: (1, high) for name, (_, high) in CATALOGUES.items()})
    _, out = steps_of(lambda callbacks: pclf.PCLF(20, 10, 15, **SETTINGS).fit(
        data, engine="cpu", n_threads=threads, callbacks=callbacks))
    return out | sweeps()


def als(session, frames, folder, n_lists):
    """Iterations from the difference of two fits, as ALS tells nobody about them."""
    from pyspark.ml.recommendation import ALS

    times, models = {}, {}
    for n in (1, 1, ITERATIONS):                # the first of all warms up what the others find warm
        times[n] = [0.0, 0.0]
        for name, (train, _) in frames.items():
            method = ALS(rank=RANK, maxIter=n, regParam=0.1, userCol="user", itemCol="item", ratingCol="rating", seed=0,
                         coldStartStrategy="drop")
            with Clock() as clock:
                models[name] = method.fit(train.select("user", "item", "rating"))
            times[n][0] += clock.wall
            times[n][1] += clock.cpu
    wall, cpu = ((times[ITERATIONS][i] - times[1][i]) / (ITERATIONS - 1) for i in (0, 1))
    out = {"iteration": wall, "iteration_cpu": cpu, "read": times[1][0] - wall, "read_cpu": times[1][1] - cpu}
    users = frames["films"][0].select("user").distinct().limit(n_lists)
    with Clock() as clock:
        models["films"].recommendForUserSubset(users, 10).write.mode("overwrite").parquet(str(folder / "lists-als"))
    out |= {"lists": clock.wall, "lists_cpu": clock.cpu}
    return out | {f"rmse_{name}": rmse(models[name].transform(test)) for name, (_, test) in frames.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--millions", type=int, default=16)
    parser.add_argument("--lists", type=int, default=80_000, help="users who get a list")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--memory", default="4g", help="of the JVM")
    parser.add_argument("--threads", type=int, default=2, help="of the one machine")
    given = parser.parse_args()
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    folder = generate(given.folder, given.millions)
    session = SparkSession.builder.master(given.master).config("spark.driver.memory", given.memory).config(
        "spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "8").getOrCreate()
    frames, work = split(session, folder), folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    row = {"ratings": given.millions * 1_000_000, "lists_of": given.lists}
    for who, measure in (("ours", lambda: ours(session, frames, work, given.lists)),
                         ("als", lambda: als(session, frames, folder, given.lists)),
                         ("one_machine", lambda: one_machine(folder, work, given.threads))):
        print(f"{who} ...", file=sys.stderr)
        row |= {f"{who}_{name}": round(value, 4) for name, value in measure().items()}
    row["ratio_wall_to_one_machine"] = round(row["ours_iteration"] / row["one_machine_iteration"], 2)
    row["ratio_sweep_to_one_machine"] = round(row["ours_sweep"] / row["one_machine_sweep"], 2)
    row["ratio_cpu_als_to_ours"] = round(row["als_iteration_cpu"] / row["ours_iteration_cpu"], 2)
    row["ratio_lists_als_to_ours"] = round(row["als_lists"] / row["ours_lists"], 2)
    row |= {"machine": platform.processor() or platform.machine(), "cores": os.cpu_count(),
            "command": " ".join(["benchmarks/spark.py", *(w for w in sys.argv[1:] if str(given.folder) not in w)])}
    with RESULTS.open("a") as file:
        file.write(json.dumps(row) + "\n")
    print(json.dumps(row, indent=1))
    session.stop()
    shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
