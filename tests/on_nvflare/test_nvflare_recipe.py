"""What a recipe is told: NVFlare's own arguments, our settings, and what is refused before a job is sent."""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
from pathlib import Path

import pytest
from defaults import written
from fedincentive.plugins.nvflare import IncentiveRecipe
from fedincentive.plugins.nvflare.doctor import problems, version
from fedincentive.plugins.nvflare.settings import ELSEWHERE, NvflareSettings

from fedincentive.errors import FedIncentiveError

ROOT = Path(__file__).parents[2]
GAME = ROOT / "examples" / "games" / "hospitals.yaml"


def test_the_job_says_what_the_recipe_was_told(tmp_path) -> None:
    script = tmp_path / "client.py"
    script.write_text("")
    recipe = IncentiveRecipe(
        mechanism="2p-upbred",
        beta="0.5",
        name="trial",
        model={"class_path": "net.Net", "args": {}},
        min_clients=3,
        num_rounds=4,
        train_script=str(script),
        round_timeout=9.0,
    )
    recipe.export(str(tmp_path / "job"))
    told = {"mechanism": "2p-upbred", "beta": "0.5", "round_timeout": 9.0, "run": "trial", "rounds": 4, "agents": 3}
    server, client = (
        json.loads(next((tmp_path / "job").rglob(f"config_fed_{side}.json")).read_text())
        for side in ("server", "client")
    )
    (controller,), (executor,) = server["workflows"], client["executors"]
    assert controller["path"].endswith("IncentiveController") and controller["args"]["incentive"] == told
    assert executor["executor"]["path"].endswith("StrategicExecutor")
    assert executor["executor"]["args"]["incentive"] == told
    assert not list((tmp_path / "job").rglob("fedincentive/*"))  # it is installed at the sites, not sent to them


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"betta": "1"}, "betta.*beta"),
        ({"rounds": 3}, "num_rounds"),
        ({"agents": 3}, "min_clients"),
        ({"beta": 0.5}, "beta.*quote"),
        ({"mechanism": "2p-upbread"}, "2p-upbred"),
        ({"game": None}, "train_script, or a game"),
        ({"train_script": "client.py"}, "train_script, or a game"),
        ({"game": "none.yaml"}, "none.yaml"),
        ({"stop_cond": "accuracy >= 80"}, "stop_cond"),
        ({"mechanism": "trim-2p-upbred", "alpha": 0.3, "min_clients": 2}, "2"),
        ({"game": None, "train_script": "client.py", "contribution": "exact"}, "exact.*give IncentiveRecipe a valida"),
        ({"validator": lambda model: 0.0}, "not a function or the class itself"),
        ({"validator": 3}, "validator is 3"),
        ({"mechanism": "realfm", "game": None, "train_script": "client.py"}, "realfm.*evaluates models at the server"),
        ({"mechanism": "fact", "game": None, "train_script": "client.py"}, "options.sandwich.targets is required"),
    ],
)
def test_what_cannot_end_well_is_refused_before_a_job_is_sent(changes, words) -> None:
    told = {"mechanism": "2p-upbred", "beta": "0.5", "game": GAME, "min_clients": 5, **changes}
    with pytest.raises(FedIncentiveError, match=words):
        IncentiveRecipe(**told)


class Validator:
    def __init__(self, scale: float) -> None:
        self.scale = scale

    def __call__(self, model) -> float:
        return self.scale * float(model["w"].sum())


def test_a_validator_is_a_component_of_the_server(tmp_path) -> None:
    for how in ("exact", "cgsv"):
        told = {"mechanism": "2p-upbred", "beta": "0.5", "game": GAME, "min_clients": 5, "contribution": how}
        IncentiveRecipe(**told)  # a game's own welfare needs none
    IncentiveRecipe(**{**told, "mechanism": "accuracy-shaping"})
    IncentiveRecipe(**{**told, "contribution": "loo"}, validator=Validator(2.0)).export(str(tmp_path / "job"))
    server = json.loads(next((tmp_path / "job").rglob("config_fed_server.json")).read_text())
    (component,) = [one for one in server["components"] if one["id"] == "validator"]
    assert component["path"].endswith("Validator") and component["args"] == {"scale": 2.0}


def test_a_script_that_is_started_for_every_task_is_refused(tmp_path) -> None:
    script = tmp_path / "client.py"
    script.write_text("")
    recipe = IncentiveRecipe(
        mechanism="2p-upbred",
        beta="0.5",
        model={"class_path": "net.Net", "args": {}},
        min_clients=3,
        train_script=str(script),
        launch_external_process=True,
    )
    recipe.launch_once = False
    with pytest.raises(FedIncentiveError, match="launch_once"):
        recipe.export(str(tmp_path / "job"))


def test_the_table_of_host_settings_is_the_schema() -> None:
    text = (ROOT / "docs" / "nvflare.md").read_text()
    table = dict(re.findall(r"^\| `([a-z_]+)` \| (\S+) \|", text, flags=re.M))
    fields = {field.name: field.default for field in dataclasses.fields(NvflareSettings) if field.name not in ELSEWHERE}
    assert {key: value.strip('`"') for key, value in table.items()} == {
        key: written(value) for key, value in fields.items()
    }


def test_the_readme_counts_the_lines_that_are_changed_in_a_fedavg_job() -> None:
    """difflib counts a changed line as one that went and one that came."""
    example = ROOT / "examples" / "nvflare"
    plain, ours = ((example / name).read_text().splitlines()[1:] for name in ("fedavg_job.py", "job.py"))
    diff = list(difflib.ndiff(plain, ours))
    gone, new = (sum(line.startswith(sign) for line in diff) for sign in "-+")
    marked = sum("# strategic" in line for line in (example / "client.py").read_text().splitlines()[1:])
    text = (example / "README.md").read_text()
    assert f"{gone} lines of it are changed" in text and f"{new - gone} are new" in text
    assert f"{marked} lines of `client.py` are marked" in text and (gone, new, marked) == (2, 7, 5)


def test_the_doctor_knows_this_version() -> None:
    assert version() and problems(version()) == []
    assert "made for 2.9" in problems("2.10.0")[0]
