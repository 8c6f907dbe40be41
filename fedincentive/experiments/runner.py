"""Runs a study: cases in worker processes, one line of JSON per finished case, figures from those lines alone.

OUT/<study>/
  manifest.json     settings, seeds, versions, git commit, hardware, ledger heads, digest of the results, and which
                    training rounds a run had from another one ("shared")
  results.jsonl     one record per case, in case order; equal seeds give equal bytes
  results.csv       the same numbers in a table
  timings.jsonl     processor seconds of each run, and in a study of time those after phase 1 and after each training
                    round: the one thing that does not repeat exactly
  raw/<job>.jsonl   what workers write as they go; --resume continues from here
  state/<job>/      the round that a case under way has reached, where the preset keeps rounds
  ledger/<job>.db   payments of the job's runs
  <figure>.png, .svg
"""

from __future__ import annotations

import csv
import hashlib
import json
import logging
import multiprocessing
import os
import platform
import re
import shutil
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from .. import ledger
from ..center.spill import free_memory
from ..checks import nearest
from ..errors import RunError, SettingError
from ..files import cell
from . import data, figures, presets
from .cluster import Cluster
from .environment import machine, versions
from .forecast import fitted, forecast, seconds_of
from .studies import STUDIES, Bench, Case, Record, Study, label

OWNER = "owner"  # the file that says who plays the study on a cluster
POLL = 0.5  # seconds between looks at what the workers have written


def run(
    name: str,
    out: str | Path,
    *,
    preset: str = "quick",
    directory: str | Path | None = None,
    seeds: int | None = None,
    resume: bool = False,
    jobs: int | None = None,
    only: Sequence[str] | None = None,
    parts: Mapping[str, Sequence[str]] | None = None,
    points: int | None = None,
    budget: str | None = None,
    cluster: str | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Path:
    """Play the study called `name`, write results and figures into OUT/name, and return that directory.

    `only` are the data sets to play on, and `parts` what to play of other lists of the preset, such as
    {"alphas": ["0.1", "0.2"]}. An agent has `points` examples at most. `budget` is a time such as 2h: seeds and
    rounds are left out until the forecast fits, and `say` is told which.
    `cluster` is the address of a Ray cluster, such as ray://HEAD:10001, whose machines all see `out`.
    """
    study = find(name)
    chosen = _chosen(name, preset, only)
    kept, cut_to = presets.kept(name, preset, parts or {})
    given = presets.of_study(name, preset, seeds=seeds, data=chosen, **kept)
    if points is not None:
        layouts = given["study"].get("layout", {})
        given["study"]["layout"] = {data: {**layouts.get(data, {}), "points": points} for data in given["data"]}
        cut_to.append(f"points: at most {points} of an agent")
    folder = Path(out) / name
    for wanted in given["data"]:
        data.check(wanted, directory)
    asked = {"study": name, "preset": preset, "asked": given, "budget": budget}
    if not (folder / "manifest.json").exists():
        given, expected = _planned(study, given, directory, budget, cut_to, say)
        begun = asked if budget else {"study": name, "preset": preset}
        _begin(folder, {**begun, "settings": given, **expected})
    else:
        given = _again(folder, asked, resume)
    cases = study.cases(given)
    started, used = time.time(), _processor_seconds()
    _play(study, cases, given, folder, directory, jobs or os.cpu_count() or 1, cluster)
    _collect(study, cases, folder, seconds=time.time() - started, used=_processor_seconds() - used)
    draw(folder)
    return folder


def find(name: str) -> Study:
    if name not in STUDIES:
        raise SettingError(f"There is no study {name!r}.{nearest(name, STUDIES)}")
    return STUDIES[name]()


def draw(folder: str | Path) -> list[Path]:
    """Rebuild a study's figures from its results, without running anything."""
    folder = Path(folder)
    manifest = read_manifest(folder)
    if not (folder / "results.jsonl").exists():
        raise RunError(f"{folder} has no results.jsonl: its run was not finished. Continue it with --resume.")
    records, timings = lines(folder / "results.jsonl"), lines(folder / "timings.jsonl")
    return figures.save(find(manifest["study"]).draw(records, timings), folder)


def read_manifest(folder: Path) -> dict[str, Any]:
    try:
        return json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(
            f"{folder} is not the directory of a run: its manifest.json cannot be read ({error})."
        ) from error


def lines(path: Path) -> list[Record]:
    """The records of a file; a last line that was cut off by a crash is left out."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            break
    return found


def _chosen(name: str, preset: str, only: Sequence[str] | None) -> Any:
    """The data sets asked for, in the shape the study has them in (one name or a list)."""
    known = presets.load(preset)["studies"][name].get("data")
    if not only or known is None:
        return None
    return list(only) if isinstance(known, list) else only[0]


def _planned(
    study: Study,
    given: dict[str, Any],
    directory: Any,
    budget: str | None,
    cut_to: list[str],
    say: Callable[[str], None],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings to play with, and what they are expected to take: long presets are measured before they start."""
    limit = None if budget is None else seconds_of(budget)
    stated = {"cut_to": cut_to} if cut_to else {}
    if limit is None and not given.get("keep_rounds"):
        return given, stated
    bench, cores = Bench(given, directory), os.cpu_count() or 1
    cases = [case for case in study.cases(given) if not (given.get("keep_rounds") and study.follows(case))]
    whole = forecast(cases, given, bench, cores)
    if whole is None:
        return given, stated
    say(f"{study.name}: {whole}, on {cores} cores as busy as they are now.")
    if cut_to:
        say(f"{study.name}: cut as asked to {'; '.join(cut_to)}.")
    if limit is not None:
        given, more = fitted(given, whole, limit)
        say(f"{study.name}: " + (f"cut to fit {budget} to {'; '.join(more)}." if more else f"fits {budget} whole."))
        cut_to = [*cut_to, *more]
    free = free_memory()
    if whole.memory > free:
        say(f"{study.name}: only {free / 2**30:.1f} GiB of memory are free: updates may wait on disk, which is slower.")
    expected = {"seconds": round(whole.seconds, 1), "memory_gib": round(whole.memory / 2**30, 2)}
    return given, {"forecast": expected, "cut_to": cut_to}


def _begin(folder: Path, manifest: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "manifest.json", {**manifest, "versions": versions(), "machine": machine()})


def _again(folder: Path, asked: Mapping[str, Any], resume: bool) -> dict[str, Any]:
    """The settings of the run in a folder, which must have been asked for in the same way."""
    if not resume:
        raise RunError(f"{folder} holds a run already: continue it with --resume, or give another --out.")
    before = read_manifest(folder)
    before = {**before, "asked": before.get("asked", before.get("settings")), "budget": before.get("budget")}
    changed = [key for key, value in asked.items() if before.get(key) != json.loads(json.dumps(value))]
    if changed:
        what = {"asked": "settings"}.get(changed[0], changed[0])
        raise RunError(f"{folder} holds a run with another {what}: give another --out, or the same options.")
    return before["settings"]


def _play(
    study: Study,
    cases: list[Case],
    given: Mapping[str, Any],
    folder: Path,
    directory: Any,
    jobs: int,
    cluster: str | None = None,
) -> None:
    by_job: dict[str, list[Case]] = {}
    for case in cases:
        by_job.setdefault(study.job(case), []).append(case)
    for part in ("raw", "ledger", "state"):
        (folder / part).mkdir(exist_ok=True)
    done = {label(r["case"]) for path in _raw(folder) for r in lines(path)}
    todo = {job: left for job, all_ in by_job.items() if (left := [c for c in all_ if label(c) not in done])}
    bar = tqdm(total=len(cases), initial=len(cases) - sum(map(len, todo.values())), desc=study.name, unit="run")
    with bar:
        if not todo:
            return
        if cluster is not None:
            _spread(study, todo, given, folder.resolve(), directory and Path(directory).resolve(), cluster, bar)
            return
        if jobs == 1 or len(todo) == 1:
            for job, left in todo.items():
                _work(study.name, job, left, given, folder, directory, bar=bar, workers=jobs)
            return
        _pool(study, todo, given, folder, directory, min(jobs, len(todo)), bar)


def _pool(
    study: Study, todo: Mapping[str, list[Case]], given: Any, folder: Path, directory: Any, jobs: int, bar: tqdm
) -> None:
    """One process per core, each with one thread: runs are independent, so all cores are busy all the time."""
    workers = max(1, (os.cpu_count() or 1) // jobs)  # fewer jobs than cores: each trains several agents at a time
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        play = partial(_work, parent=os.getpid(), workers=workers)
        work = [(study.name, job, left, given, folder, directory) for job, left in todo.items()]
        _wait({pool.submit(play, *each) for each in work}, folder, bar)


def _spread(
    study: Study, todo: Mapping[str, list[Case]], given: Any, folder: Path, directory: Any, cluster: str, bar: tqdm
) -> None:
    """On a cluster. Workers that an earlier run has left there write nothing more once the file OWNER has changed."""
    with Cluster(cluster) as machines:
        owner = uuid.uuid4().hex
        (folder / OWNER).write_text(owner, encoding="utf-8")
        work = [(study.name, job, left, given, folder, directory, owner) for job, left in todo.items()]
        _wait({machines.submit(_work, *each) for each in work}, folder, bar)
        (folder / OWNER).unlink()


def _wait(futures: set[Future], folder: Path, bar: tqdm) -> None:
    """Until all jobs are done; the first error ends it."""
    try:
        while futures:
            finished, futures = wait(futures, timeout=POLL, return_when=FIRST_COMPLETED)
            bar.n = sum(len(lines(path)) for path in _raw(folder))
            bar.refresh()
            for future in finished:
                future.result()
    except BaseException:
        for future in futures:
            future.cancel()
        raise


def _owned(folder: Path, owner: str | None) -> bool:
    """Whether a worker on a cluster is still wanted; elsewhere it always is."""
    try:
        return owner is None or (folder / OWNER).read_text(encoding="utf-8") == owner
    except OSError as error:
        raise RunError(
            f"{folder} is not to be read on {platform.node()} ({error.strerror}): with --on ray://... --out must be on "
            "storage that every machine of the cluster sees."
        ) from error


def _work(
    name: str,
    job: str,
    cases: list[Case],
    given: Any,
    folder: Path,
    directory: Any,
    owner: str | None = None,
    *,
    bar: tqdm | None = None,
    parent: int | None = None,
    workers: int = 1,
) -> None:
    """The cases of one job, in one process with one thread per agent in training; each is on disk before the next
    begins, and where the preset keeps rounds, so is each round."""
    if not _owned(folder, owner):
        return
    import torch

    from .training import keep_memory

    torch.set_num_threads(1)
    keep_memory()
    logging.getLogger("fedincentive").setLevel(logging.ERROR)  # a sweep tries betas that are too low on purpose
    study, stem = find(name), re.sub(r"[^\w.-]", "_", job)
    raw = folder / "raw" / f"{stem}.jsonl"
    kept = lines(raw)
    done = {label(record["case"]) for record in kept}  # by a worker whose machine was lost
    cases = [case for case in cases if label(case) not in done]
    raw.write_text("".join(_line(record) for record in kept), encoding="utf-8")  # without a line cut off by a crash
    states = folder / "state" / stem if given.get("keep_rounds") else None
    begun = 0 if states is not None else len(kept)  # a case that goes on goes on in its ledger
    with ledger.open(_book(folder, stem, begun, anew=states is None)) as book, raw.open("a", encoding="utf-8") as file:
        bench = Bench(given, directory, book, states, workers)
        for case in cases:
            if parent is not None and os.getppid() != parent:
                return  # the run was killed; whoever resumes it writes these files from now on
            bench.seconds, before = [], time.process_time()
            result = study.play(case, bench)
            if not _owned(folder, owner):
                return
            timing: Record = {"processor_seconds": round(time.process_time() - before, 4)}
            if bench.seconds:
                timing["seconds"] = [round(x, 4) for x in bench.seconds]
            if shared := bench.shared(case):
                timing["shared"] = {other: _spans(steps) for other, steps in shared.items()}
            file.write(_line({"case": case, "result": result, **timing}))
            file.flush()
            if (state := bench.state(case)) is not None:
                os.fsync(file.fileno())
                shutil.rmtree(state, ignore_errors=True)
            if bar is not None:
                bar.update()


def _book(folder: Path, stem: str, begun: int, *, anew: bool) -> Path:
    """The job's ledger. A job resumed half-way gets a new one, as the case it broke off in may be half in the old; what
    is there under the new one's name holds nothing but such a case."""
    path = folder / "ledger" / (f"{stem}.db" if not begun else f"{stem}-from-{begun}.db")
    if anew:
        for ending in ("", "-wal", "-shm"):
            path.with_name(path.name + ending).unlink(missing_ok=True)
    return path


def _collect(study: Study, cases: list[Case], folder: Path, seconds: float, used: float) -> None:
    found = {label(r["case"]): r for path in _raw(folder) for r in lines(path)}
    records = [found[label(case)] for case in cases]
    plain = [{"case": r["case"], "result": r["result"]} for r in records]
    (folder / "results.jsonl").write_text("".join(map(_line, plain)), encoding="utf-8")
    timed = ("case", "processor_seconds", "seconds")
    timings: list[Record] = [{k: r[k] for k in timed if k in r} for r in records]
    (folder / "timings.jsonl").write_text("".join(map(_line, timings)), encoding="utf-8")
    _table(plain, folder / "results.csv")
    heads = {}
    for path in sorted((folder / "ledger").glob("*.db")):
        with ledger.read(path) as book:
            head = book.head()
        heads[path.name] = {"count": head.count, "hash": head.hash, "ledger": head.ledger}
    digest = hashlib.sha256((folder / "results.jsonl").read_bytes()).hexdigest()
    spent = {"seconds": round(seconds, 1), "processor_seconds": round(used, 1)}  # of the last session, if resumed
    shared = {label(r["case"]): r["shared"] for r in records if "shared" in r}
    manifest = {**read_manifest(folder), "ledgers": heads, "results_sha256": digest, "shared": shared, **spent}
    _write(folder / "manifest.json", manifest)


def _spans(steps: Sequence[int]) -> str:
    """Training rounds in short.

    >>> _spans([0, 1, 2, 5])
    '0-2, 5'
    """
    ends = [k for k in steps if k + 1 not in steps]
    starts = [k for k in steps if k - 1 not in steps]
    return ", ".join(f"{a}-{b}" if b > a else str(a) for a, b in zip(starts, ends, strict=True))


def _processor_seconds() -> float:
    """Of this process and of the workers that have ended."""
    now = os.times()
    return now.user + now.system + now.children_user + now.children_system


def _table(records: Sequence[Record], path: Path) -> None:
    """The scalars of every record; nested values stay in results.jsonl."""
    rows = [{**r["case"], **{k: v for k, v in r["result"].items() if not isinstance(v, (dict, list))}} for r in records]
    rows = [{k: v for k, v in row.items() if k not in ("certificate", "head", "model")} for row in rows]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: cell(value) for key, value in row.items()} for row in rows)


def _raw(folder: Path) -> list[Path]:
    return sorted((folder / "raw").glob("*.jsonl"))


def _line(record: Record) -> str:
    return json.dumps(record, separators=(",", ":")) + "\n"


def _write(path: Path, values: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
