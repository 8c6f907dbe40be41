"""The rounds of a run in NVFlare: the same ledger as everywhere, whatever sites do."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import parity
import pytest
from fedincentive.plugins.nvflare import wire
from fedincentive.plugins.nvflare.wire import INCENTIVE
from keyring import folder_of
from nvflare.apis.shareable import Shareable
from programs import run

from fedincentive import ledger
from fedincentive.ledger import standalone
from fedincentive.ledger.verify import verify
from fedincentive.manifest import SavedRun, find


def results(table) -> Path:
    return table.engine.run_dir / "fedincentive-runs" / parity.RUN


def head(table) -> str:
    return parity.head_of(results(table) / "ledger.sqlite")


def saved(table) -> SavedRun:
    return SavedRun.read(find(results(table)))


@pytest.mark.parametrize("mechanism", parity.MECHANISMS)
def test_the_parity_game_has_the_ledger_of_the_core(table, tmp_path, mechanism) -> None:
    played = table(mechanism).play()
    assert played.panics == []
    assert head(played) == parity.in_engine(mechanism, tmp_path)


def test_scalar_rounds_are_messages_without_a_model(table) -> None:
    played = table("2p-upbred").play()
    tasks = played.engine.sites["hospital"].tasks
    assert tasks[0] == INCENTIVE and set(tasks[1:]) == {"train", "validate"}
    assert played.engine.messages == saved(played).outcome["contributed"] > 0


def test_whoever_no_message_reaches_is_asked_by_a_task(table, tmp_path) -> None:
    played = table("2p-upbred")
    played.engine.unreachable = {"clinic"}
    assert head(played.play()) == parity.in_engine("2p-upbred", tmp_path)
    assert played.engine.sites["clinic"].tasks.count(INCENTIVE) > 1


def test_a_site_that_is_down_is_absent_and_back_with_its_memory(table) -> None:
    played = table("2p-upbred", quorum=0.5)
    steps = []

    def before(task, site) -> None:
        if task == "train" and site.name == "clinic":
            steps.append(task)
            if len(steps) in (1, 2):
                site.down = True
            elif site.down:
                site.down = False
                site.start()

    played.before = before
    assert played.play().panics == []
    assert played.outcome.status == "complete"
    with ledger.read(results(played) / "ledger.sqlite") as book:
        assert verify(book, recompute=True).clean
        delivered = [e.inputs["delivered"] for e in book.entries() if "delivered" in e.inputs]
    assert delivered[0]["clinic"] == 0 < delivered[-1]["clinic"]


def test_a_run_below_its_quorum_ends_with_a_plain_error(table) -> None:
    played = table("2p-upbred", quorum=1.0, repeats=1)
    played.before = lambda task, site: setattr(site, "down", task == "train" and site.name == "clinic")
    (reason,) = played.play().panics
    assert "quorum" in reason and "clinic" in reason


def test_a_run_goes_on_in_a_new_job(table, tmp_path) -> None:
    """The server is gone in a training round; the next job has other folders, and ends with the same head."""
    kept = str(tmp_path / "kept")
    first = table("2p-upbred", output=kept)

    def gone(task, site) -> None:
        if task == "train" and first.center.run.trained == 2:
            raise KeyboardInterrupt

    first.before = gone
    with pytest.raises(KeyboardInterrupt):
        first.play()
    again = table("2p-upbred", folder="again", output=kept, resume=True).play()
    assert again.panics == []
    assert again.outcome.checkpoint == parity.in_engine("2p-upbred", tmp_path)
    assert {path.name for path in results(again).iterdir()} == {"ledger.jsonl", "manifest.json", "report.html"}
    check = [sys.executable, standalone.__file__, str(results(again) / "ledger.jsonl")]
    assert again.outcome.checkpoint in run(*check, cwd=tmp_path).stdout


def test_a_second_run_of_the_same_name_is_refused_before_anyone_joins(table, tmp_path) -> None:
    kept = str(tmp_path / "kept")
    table("2p-upbred", output=kept).play()
    again = table("2p-upbred", folder="again", output=kept).play()
    assert "resume" in again.panics[0] and again.engine.sites["clinic"].tasks == []


# Hostile and broken sites


def changed(result: Shareable, **values) -> Shareable:
    """A site's reply with other words in its report."""
    place = result if INCENTIVE in result else result["DXO"]["meta"] if "DXO" in result else None
    if place is not None and place.get(INCENTIVE):
        place[INCENTIVE] = json.dumps({**json.loads(place[INCENTIVE]), **values})
    return result


@pytest.mark.parametrize(
    "values, words",
    [
        ({"agent": "hospital"}, "in the name of 'hospital'"),
        ({"s": "much", "delivered": "much"}, "does not fit a Report"),
        ({"s": float("nan"), "delivered": float("nan")}, "nan"),
        ({"s": 1e300, "delivered": 1e300}, "between 0 and its s_max"),
        ({"treasure": 1}, "which it does not have"),
        ({"round": True}, "does not fit a Report"),
        ({"signature": "x" * 2000}, "does not fit a Report"),
    ],
)
def test_what_a_hostile_site_reports_is_refused_by_name(table, caplog, values, words) -> None:
    played = table("2p-upbred", quorum=0.5, round_limit=3, rounds=2)
    clinic = played.engine.sites["clinic"]
    clinic.tamper = lambda task, result: result if task == INCENTIVE else changed(result, **values)
    assert played.play().panics == []
    refused = [record.message for record in caplog.records if "clinic" in record.message and words in record.message]
    assert refused, caplog.text[-3000:]
    with ledger.read(results(played) / "ledger.sqlite") as book:
        assert verify(book, recompute=True).clean


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 1, "a": 2}', None, 7, "[" * 50])
def test_words_that_are_no_message_do_not_end_the_run(table, text) -> None:
    played = table("2p-upbred", quorum=0.5, round_limit=3, rounds=2)

    def babble(task, result):
        if task != INCENTIVE:
            place = result if INCENTIVE in result else result["DXO"]["meta"]
            place[INCENTIVE] = text
        return result

    played.engine.sites["clinic"].tamper = babble
    assert played.play().panics == []


def test_arrays_that_do_not_fit_are_refused_by_name(table, caplog) -> None:
    played = table("2p-upbred", quorum=0.5, rounds=2)

    def leave_out(task, result):
        if task == "train":
            result["DXO"]["data"] = {"v": result["DXO"]["data"]["w"]}
        return result

    played.engine.sites["clinic"].tamper = leave_out
    assert played.play().panics == []
    assert "Agent 'clinic' sends a model without ['w'] and with ['v']" in caplog.text


def test_float64_from_a_filter_becomes_the_models_type(table, tmp_path) -> None:
    """PercentilePrivacy returns float64 whatever it is given; the game's own type is float64, so this one widens."""
    played = table("2p-upbred")

    def longer(task, result):
        if task == "train":
            result["DXO"]["data"] = {k: v.astype("longdouble").astype("f8") for k, v in result["DXO"]["data"].items()}
        return result

    played.engine.sites["clinic"].tamper = longer
    assert head(played.play()) == parity.in_engine("2p-upbred", tmp_path)


def test_a_message_without_the_secret_is_not_answered(table) -> None:
    played = table("2p-upbred")
    played.play()
    clinic = played.engine.sites["clinic"]
    for secret in (None, "", "0" * 32, 5, "\ud800"):
        request = Shareable({INCENTIVE: wire.write(played.center.broadcast()), "secret": secret})
        reply = clinic.message(INCENTIVE, request)
        assert reply.get_return_code() != "OK" and INCENTIVE not in reply


def test_late_results_are_counted_and_dropped(table) -> None:
    played = table("2p-upbred")
    kept = []

    def late(task, result):
        if task == "train":
            kept.append(result)
        return result

    played.engine.sites["clinic"].tamper = late
    before = None

    def count(task, site) -> None:
        nonlocal before
        if task == "validate" and before is None:
            before = played.center.counts["late"]
            from nvflare.apis.client import Client

            played.process_result_of_unknown_task(Client("clinic", ""), "train", "x", kept[0], played.fl_ctx)

    played.before = count
    played.play()
    assert played.center.counts["late"] == before + 1


def test_an_agent_enrols_with_its_budget_and_what_it_has_alone(table) -> None:
    played = table("2p-upbred", budget={"clinic": 7.5}, opt_in=True)
    told = {name: site.executor.seat.agent.enrol() for name, site in played.engine.sites.items()}
    assert {name: enrol.budget for name, enrol in told.items()} == {"hospital": None, "clinic": 7.5, "practice": None}
    assert all(isinstance(enrol.alone, float) for enrol in told.values())


# Signed runs


def test_a_signed_run_has_every_signature(table, tmp_path) -> None:
    keys = folder_of(tmp_path / "keys", [agent["name"] for agent in parity.GAME["agents"]])
    played = table("2p-upbred", keys=str(keys)).play()
    assert played.panics == []
    assert played.outcome.basis == "signed"


def test_a_site_with_anothers_key_does_not_enrol(table, tmp_path) -> None:
    names = [agent["name"] for agent in parity.GAME["agents"]]
    keys, others = folder_of(tmp_path / "keys", names), folder_of(tmp_path / "others", names)
    played = table("2p-upbred", keys="keys")
    for name, folder in zip(("server", *names), (keys, keys, others, keys), strict=True):
        where = (played.engine if name == "server" else played.engine.sites[name].engine).workspace
        Path(where.get_site_config_dir(), "keys").symlink_to(folder)
    (reason,) = played.play().panics
    assert "2 of 3 agents enrolled" in reason and "clinic" in reason


# What NVFlare's users see


def test_metrics_go_to_nvflares_analytics(table) -> None:
    played = table("2p-upbred").play()
    seen = {(point["track_key"], point["global_step"]): point["track_value"] for point in played.engine.analytics}
    last = max(step for _, step in seen)
    s = played.outcome.s
    assert {agent: seen[f"incentive/s/{agent}", last] for agent in s} == s
    assert ("incentive/welfare", last) in seen
    balance = sum(value for (name, _), value in seen.items() if name == "incentive/payment/clinic")
    assert balance == pytest.approx(played.outcome.payments["clinic"] / 10**6)


def test_results_are_in_the_jobs_folder(table) -> None:
    played = table("2p-upbred").play()
    assert (results(played) / "report.html").read_text().count("clinic") > 3
    assert saved(played).certificate is not None


@pytest.mark.parametrize("how", ["exact", "gtg", "loo", "cgsv"])
def test_updates_are_valued_by_the_jobs_validator(table, how) -> None:
    controller = table("2p-upbred", contribution=how)
    asked = []
    controller.engine.components["validator"] = lambda model: asked.append(model) or float(model["w"].sum())
    assert controller.play().panics == []
    values = controller.outcome.worth
    assert set(values) == set(controller.outcome.s) and len(set(values.values())) > 1
    assert bool(asked) == (how != "cgsv")


def test_a_validator_that_says_no_number_ends_the_run_with_a_plain_error(table) -> None:
    controller = table("2p-upbred", contribution="loo")
    controller.engine.components["validator"] = lambda model: "good"
    (reason,) = controller.play().panics
    assert "validator said 'good' of a model: it must return one number" in reason
