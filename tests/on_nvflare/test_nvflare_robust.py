"""Robust aggregators in NVFlare's FedAvg: the right rule, the same bits in any order, from memory and offload files."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from fedincentive.plugins.nvflare import GeometricMedian, Krum, Median, MultiKrum, RobustAggregator, TrimmedMean
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_opt.pt.lazy_tensor_dict import LazyTensorDict
from nvflare.app_opt.pt.recipes import FedAvgRecipe
from safetensors.torch import save_file

from fedincentive import aggregation
from fedincentive.aggregation.reference import share_trimmed_mean
from fedincentive.errors import AggregationError, SettingError

N = 7
RULES = {
    "mean": (lambda **o: RobustAggregator("mean", **o), {}),
    "trimmed-mean": (TrimmedMean, {"trim": 2}),
    "median": (Median, {}),
    "krum": (Krum, {"f": 1}),
    "multi-krum": (MultiKrum, {"f": 1, "m": 3}),
    "geometric-median": (GeometricMedian, {}),
}
SAID = (40, 10, 30, 30, 20, 10, 20)  # steps that the sites say they took


def models(dtype=torch.float32) -> list[dict[str, torch.Tensor]]:
    draw = torch.Generator().manual_seed(3)
    return [
        {
            "layer.weight": torch.randn(40, 9, generator=draw).to(dtype),
            "layer.bias": torch.randn(9, generator=draw).to(dtype),
            "norm.num_batches_tracked": torch.tensor(i),
        }
        for i in range(N)
    ]


def offloaded(model: dict[str, torch.Tensor], folder: Path) -> dict[str, object]:
    """The model as NVFlare's disk offload leaves it: a file for each tensor, keys T0, T1, ..."""
    folder.mkdir(parents=True)
    places = {}
    for index, (name, tensor) in enumerate(model.items()):
        path = folder / f"{index}.safetensors"
        save_file({f"T{index}": tensor}, path)
        places[name] = str(path), f"T{index}"
    lazy = LazyTensorDict(places, str(folder))
    return {name: lazy.make_lazy_ref(name) for name in model}


def results(params, kind=ParamsType.FULL) -> list[FLModel]:
    return [FLModel(params_type=kind, params=p, meta={"client_name": f"site-{i}"}) for i, p in enumerate(params)]


def aggregated(aggregator, given) -> FLModel:
    for model in given:
        aggregator.accept_model(model)
    return aggregator.aggregate_model()


def same(one, other) -> bool:
    return all(torch.equal(torch.as_tensor(one[name]), torch.as_tensor(other[name])) for name in other)


@pytest.mark.parametrize("name", RULES)
def test_it_is_the_rule(name) -> None:
    make, options = RULES[name]
    found = aggregated(make(**options), results(models()))
    assert found.params_type == ParamsType.FULL and same(found.params, aggregation.rule(name).use(models(), **options))
    assert all(isinstance(value, torch.Tensor) for value in found.params.values())


def test_against_torch_itself() -> None:
    given = models()
    found = aggregated(TrimmedMean(trim=2), results(given)).params
    stacked = torch.stack([model["layer.weight"] for model in given]).sort(dim=0).values
    torch.testing.assert_close(found["layer.weight"], stacked[2:-2].mean(dim=0))
    middle = aggregated(Median(), results(given)).params["layer.bias"]
    assert torch.equal(middle, torch.stack([model["layer.bias"] for model in given]).median(dim=0).values)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_offload_files_give_the_same_bits_in_every_order(tmp_path, name, dtype) -> None:
    make, options = RULES[name]
    given = models(dtype)
    expected = aggregated(make(**options), results(given)).params
    for attempt, order in enumerate(itertools.islice(itertools.permutations(range(N)), 0, 5040, 1700)):
        lazy = results([offloaded(model, tmp_path / f"{attempt}-{i}") for i, model in enumerate(given)])
        found = aggregated(make(**options), [lazy[i] for i in order])
        assert same(found.params, expected) and found.params["layer.weight"].dtype == dtype


@pytest.mark.parametrize(
    "name, words",
    [("krum", "krum, from their offload files"), ("meamed", "meamed, read whole from their offload files")],
)
def test_the_log_says_whether_files_were_read_piece_by_piece(tmp_path, caplog, name, words) -> None:
    caplog.set_level("INFO", "fedincentive")
    lazy = results([offloaded(model, tmp_path / str(i)) for i, model in enumerate(models())])
    assert same(aggregated(RobustAggregator(name, f=1), lazy).params, aggregation.rule(name).use(models(), f=1))
    assert f"Aggregated 7 sites by {words}" in caplog.text


def test_numpy_models_stay_numpy() -> None:
    given = [{name: tensor.numpy() for name, tensor in model.items()} for model in models()]
    found = aggregated(Median(), results(given)).params
    assert all(isinstance(value, np.ndarray) for value in found.values())


def test_the_next_round_begins_anew() -> None:
    aggregator = Median()
    aggregated(aggregator, results(models()))
    one = results([{"w": np.float32([5])}])
    assert aggregated(aggregator, one).params["w"] == 5


def test_weights_are_by_site_and_the_mean_weighs_by_steps() -> None:
    given = [{"w": np.float64([v])} for v in (1.0, 2.0, 10.0)]
    sites = results(given)
    for model, steps in zip(sites, (1, 1.0, np.int64(2)), strict=True):
        model.meta["NUM_STEPS_CURRENT_ROUND"] = steps
    assert aggregated(RobustAggregator("mean"), sites).params["w"] == 23 / 4
    shares = RobustAggregator("mean", weights={"site-0": 1, "site-1": 3, "site-2": 0})
    assert aggregated(shares, results(given)).params["w"] == 7 / 4
    with pytest.raises(SettingError, match="site-2"):
        aggregated(RobustAggregator("mean", weights={"site-0": 1, "site-1": 3}), results(given))


def test_clipping_is_around_the_last_aggregate() -> None:
    aggregator = RobustAggregator("centered-clipping", clip=1.0)
    steps = [{"w": np.float64([v])} for v in (0.5, 0.5, 100.0)]
    first = aggregated(aggregator, results(steps, ParamsType.DIFF)).params["w"]
    assert first == pytest.approx(2 / 3)
    again = aggregated(aggregator, results(steps, ParamsType.DIFF)).params["w"]
    assert again == pytest.approx(2 / 3 + (2 * (0.5 - 2 / 3) + 1) / 3)


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: TrimmedMean(), "needs either trim or alpha or share"),
        (lambda: TrimmedMean(trim=1, f=1), "f does not go with rule trimmed-mean"),
        (lambda: RobustAggregator("trimed-mean", trim=1), "trimmed-mean"),
        (lambda: aggregated(TrimmedMean(trim=4), results(models())), "trim"),
        (lambda: aggregated(RobustAggregator("norm-clipping", clip=1.0), results(models())), "TransferType.DIFF"),
        (
            lambda: RobustAggregator("centered-clipping", clip=1.0)
            and aggregated(RobustAggregator("centered-clipping", clip=1.0), results(models())),
            "first model",
        ),
        (
            lambda: aggregated(
                Median(),
                [results([{"w": np.ones(1)}], kind)[0] for kind in (ParamsType.FULL,)]
                + results([{"w": np.ones(1)}] * 2, ParamsType.DIFF)[1:],
            ),
            "all FULL or all DIFF",
        ),
        (lambda: Median().accept_model(FLModel(params={"w": np.ones(1)})), "client_name"),
        (lambda: Median().aggregate_model(), "0 results"),
        (lambda: aggregated(Median(), results([{"w": np.ones(1)}, {"v": np.ones(1)}])), "'v'|v"),
    ],
)
def test_what_cannot_be_aggregated_is_refused_with_the_reason(make, words) -> None:
    with pytest.raises((SettingError, AggregationError), match=words):
        make()


OTHER_FORMS = {
    "an entry less": lambda given: {"layer.bias": given["layer.bias"]},
    "another shape": lambda given: {**given, "layer.bias": torch.zeros(10)},
    "another type": lambda given: {**given, "layer.bias": given["layer.bias"].double()},
    "an entry that is no array": lambda given: {**given, "layer.bias": "nothing"},
    "no entries": lambda given: {},
    "no mapping": lambda given: None,
}


@pytest.mark.parametrize("form", OTHER_FORMS)
def test_a_site_that_sends_another_form_is_left_out_by_name(form, caplog) -> None:
    """It would end the job of all others otherwise; that it is the first by name makes its form not the right one."""
    given = results(models())
    expected = aggregated(TrimmedMean(trim=1), given[1:]).params
    given[0].params = OTHER_FORMS[form](given[0].params)
    assert same(aggregated(TrimmedMean(trim=1), given).params, expected)
    assert "Site site-0 is left out: it sends" in caplog.text


def test_a_site_that_sends_differences_among_models_or_in_a_file_of_another_form_is_left_out(tmp_path, caplog) -> None:
    given = models()
    lazy = results([offloaded(model, tmp_path / str(i)) for i, model in enumerate(given)])
    lazy[2].params = offloaded({**given[2], "layer.bias": torch.zeros(3)}, tmp_path / "other")
    lazy[4].params_type = ParamsType.DIFF
    rest = [model for i, model in enumerate(given) if i not in (2, 4)]
    assert same(aggregated(Median(), lazy).params, aggregated(Median(), results(rest)).params)
    assert all(f"Site site-{i} is left out" in caplog.text for i in (2, 4))


@pytest.mark.parametrize("files", [False, True])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["mean", "trimmed-mean", "geometric-median", "norm-clipping", "centered-clipping"])
def test_a_site_that_sends_no_finite_numbers_cannot_end_the_job(tmp_path, caplog, name, value, files) -> None:
    options = {"trimmed-mean": {"share": 0.01}, "norm-clipping": {"clip": 1.0}, "centered-clipping": {"clip": 1.0}}
    given = [{"a": tensor} for tensor in torch.randn(5, 8, generator=torch.Generator().manual_seed(1))]
    without = aggregated(
        RobustAggregator(name, **options.get(name, {})), results([given[i] for i in (0, 1, 3, 4)], ParamsType.DIFF)
    )
    given[2] = {"a": torch.full((8,), value)}
    sent = [offloaded(model, tmp_path / str(i)) for i, model in enumerate(given)] if files else given
    found = aggregated(RobustAggregator(name, **options.get(name, {})), results(sent, ParamsType.DIFF))
    assert same(found.params, without.params)
    words = r"some of site-0, site-1" if name == "centered-clipping" else "site-2): "
    assert f"Sites are left out ({words}" in caplog.text


@pytest.mark.parametrize("make", [lambda: RobustAggregator("mean"), lambda: TrimmedMean(share=0.2)])
@pytest.mark.parametrize("steps", [float("nan"), -1, float("inf"), "many", None])
def test_a_site_whose_steps_are_no_weight_is_left_out_by_name(make, steps, caplog) -> None:
    given = [{"w": np.float64([v])} for v in (1.0, 2.0, 4.0, 5.0)]
    sites = results(given)
    sites[1].meta["NUM_STEPS_CURRENT_ROUND"] = steps
    rest = [site for i, site in enumerate(results(given)) if i != 1]
    assert aggregated(make(), sites).params["w"] == aggregated(make(), rest).params["w"]
    assert f"Site site-1 is left out: it sends what cannot be read ({steps} as its steps" in caplog.text


@pytest.mark.parametrize("weights", [None, {f"site-{i}": float(steps) for i, steps in enumerate(SAID)}])
def test_a_trim_by_data_share_weighs_by_what_sites_say_or_the_job_does(tmp_path, weights) -> None:
    """From memory and from offload files; a site that says it did nearly all is held to the cap."""
    given = models()
    sites = [results(given), results([offloaded(model, tmp_path / str(i)) for i, model in enumerate(given)])]
    for both in zip(*sites, SAID, strict=True):
        for model in both[:2]:
            model.meta["NUM_STEPS_CURRENT_ROUND"] = 10**9 if weights else both[2]
    arrays = [model["layer.weight"].double().numpy() for model in given]
    expected = share_trimmed_mean(arrays, 0.2, SAID)
    for arrived in sites:
        found = aggregated(TrimmedMean(share=0.2, weights=weights), arrived).params["layer.weight"]
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_a_site_that_says_it_did_all_the_work_is_held_to_the_cap() -> None:
    given = [{"w": np.float64([v])} for v in (1.0, 2.0, 3.0, 4.0, 1000.0)]
    sites = results(given)
    sites[4].meta["NUM_STEPS_CURRENT_ROUND"] = 10**9
    assert 1.0 <= aggregated(TrimmedMean(share=0.25, cap=0.25), sites).params["w"][0] <= 4.0
    sites = results(given)
    sites[4].meta["NUM_STEPS_CURRENT_ROUND"] = 10**9
    with pytest.raises(AggregationError, match="cap"):
        aggregated(TrimmedMean(share=0.25), sites)


def test_a_recipe_writes_it_into_the_job(tmp_path) -> None:
    script = tmp_path / "client.py"
    script.write_text("")
    recipe = FedAvgRecipe(
        model={"class_path": "net.Net", "args": {}},
        min_clients=3,
        train_script=str(script),
        aggregator=TrimmedMean(trim=1),
    )
    recipe.export(str(tmp_path / "job"))
    written = json.loads(next((tmp_path / "job").rglob("config_fed_server.json")).read_text())
    (controller,) = written["workflows"]
    told = controller["args"]["aggregator"]
    assert told["path"] == "fedincentive.plugins.nvflare.robust.RobustAggregator"
    assert told["args"] == {"rule": "trimmed-mean", "trim": 1}
