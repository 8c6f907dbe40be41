"""The robust strategies in place of Flower's: the same replies, our conventions."""

from __future__ import annotations

import numpy as np
import pytest
from fedincentive.plugins import flower as ours
from flower_task import identified
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import strategy as theirs
from packages import install_shrunk_mean

from fedincentive.aggregation import rule, trim_count
from fedincentive.errors import AggregationError, SettingError


def replies(models: list[dict[str, np.ndarray]], counts: list[int] | None = None) -> list[Message]:
    """What nodes 1, 2, ... would send back after training."""
    identified()
    made = []
    for node, model in enumerate(models, start=1):
        asked = Message(RecordDict(), dst_node_id=node, message_type="train")
        metrics = MetricRecord({"num-examples": counts[node - 1] if counts else 10, "loss": float(node)})
        record = ArrayRecord({name: Array(np.asarray(array)) for name, array in model.items()})
        made.append(Message(RecordDict({"arrays": record, "metrics": metrics}), reply_to=asked))
    return made


def models(n: int, seed: int = 0) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [
        {
            "conv": rng.normal(size=(3, 2, 5)).astype(np.float32),
            "bias": rng.normal(size=7),
            "scale": np.float32(rng.normal()),
            "fortran": np.asfortranarray(rng.normal(size=(4, 6))),
            "empty": np.zeros((0, 3), np.float32),
        }
        for _ in range(n)
    ]


def aggregated(strategy: theirs.FedAvg, answers: list[Message]) -> dict[str, np.ndarray]:
    arrays, _ = strategy.aggregate_train(1, answers)
    assert arrays is not None
    return {name: array.numpy() for name, array in arrays.items()}


@pytest.mark.parametrize(
    ("name", "options", "n"),
    [
        ("FedTrimmedAvg", {"beta": 0.2}, 10),
        ("FedTrimmedAvg", {"beta": 0.0}, 4),
        ("FedTrimmedAvg", {"beta": 0.2}, 7),
        ("FedTrimmedAvg", {"beta": 0.4}, 2),
        ("FedTrimmedAvg", {"beta": 0.49}, 3),
        ("FedTrimmedAvg", {"beta": 0.3}, 1),
        ("Bulyan", {"num_malicious_nodes": 0}, 5),
        ("FedMedian", {}, 7),
        ("FedMedian", {}, 8),
        ("Krum", {"num_malicious_nodes": 2}, 9),
        ("MultiKrum", {"num_malicious_nodes": 1, "num_nodes_to_select": 3}, 8),
    ],
)
def test_where_conventions_agree_results_are_flowers(name: str, options: dict, n: int) -> None:
    counts = list(range(5, 5 + n))
    mine, metrics = getattr(ours, name)(**options).aggregate_train(1, replies(models(n), counts))
    other, their_metrics = getattr(theirs, name)(**options).aggregate_train(1, replies(models(n), counts))
    assert isinstance(getattr(ours, name)(**options), getattr(theirs, name))
    assert list(mine) == list(other)
    for key in other:
        np.testing.assert_allclose(mine[key].numpy(), other[key].numpy(), rtol=1e-6, atol=1e-7)
        assert mine[key].numpy().shape == other[key].numpy().shape
    assert dict(metrics) == pytest.approx(dict(their_metrics))


def test_the_trim_is_exact_where_flowers_is_one_short() -> None:
    n, beta = 100, 0.29
    assert int(beta * n) == 28 and trim_count(beta, n) == 29
    values = [{"w": np.float64([2.0**i])} for i in range(n)]
    kept = [2.0**i for i in range(29, 71)]
    got = aggregated(ours.FedTrimmedAvg(beta=beta), replies(values))["w"][0]
    assert got == pytest.approx(np.mean(kept), rel=1e-12)
    assert aggregated(theirs.FedTrimmedAvg(beta=beta), replies(values))["w"][0] != pytest.approx(np.mean(kept), rel=0.1)


@pytest.mark.parametrize("n", [2, 4, 10, 5])
def test_half_is_an_error_and_never_nan(n: int) -> None:
    with pytest.raises(
        ValueError, match="0.5"
    ):  # Flower's own constructor refuses it from some version on, ours always
        ours.FedTrimmedAvg(beta=0.5).aggregate_train(1, replies(models(n)))


def test_a_trim_that_leaves_nothing_is_an_error() -> None:
    with pytest.raises(AggregationError, match="leaves nothing of n=2"):
        ours.FedTrimmedAvg(beta=0.4, rounding="ceil").aggregate_train(1, replies(models(2)))
    with pytest.raises(SettingError, match="rounding is 'up'"):
        ours.FedTrimmedAvg(rounding="up")


def test_the_trim_is_the_whole_part_and_always_leaves_a_model() -> None:
    """Against exact fractions of the written numbers, for all n and two digits of beta."""
    for n in range(1, 60):
        for hundredths in range(50):
            strategy = ours.FedTrimmedAvg(beta=hundredths / 100)
            assert strategy.options(n) == {"trim": hundredths * n // 100} and 2 * (hundredths * n // 100) < n
            strategy.rounding = "ceil"
            assert strategy.options(n) == {"trim": -(-hundredths * n // 100)}


def test_bulyan_is_the_papers_and_gives_no_model_to_too_few() -> None:
    values = [{"w": np.float64([v])} for v in (1.0, 1.1, 0.9, 1.05, 0.95, 1.02, 1e6)]
    got = aggregated(ours.Bulyan(num_malicious_nodes=1), replies(values))["w"]
    assert got == rule("bulyan").use([value["w"] for value in values], f=1) and abs(got[0] - 1.0) < 0.1
    assert ours.Bulyan(num_malicious_nodes=2).aggregate_train(1, replies(values)) == (None, None)
    chosen = ours.Bulyan(num_malicious_nodes=1, selection_rule=lambda contents, f, m: contents[:m])
    assert aggregated(chosen, replies(values))["w"][0] == pytest.approx(1.0)


def test_krum_finds_the_cluster_that_float32_products_lose() -> None:
    """Far from the origin ||x||^2 + ||y||^2 - 2 x.y is all rounding; differences are exact."""
    offsets = [0.0, 0.5, 0.25, 0.375, 40.0]
    far = [{"w": np.full(1000, 10_000 + d, np.float32)} for d in offsets]
    got = aggregated(ours.Krum(num_malicious_nodes=1), replies(far))["w"]
    assert np.array_equal(got, far[3]["w"])


def test_the_result_does_not_depend_on_who_answers_first() -> None:
    for strategy in (ours.FedTrimmedAvg(beta=0.2), ours.FedMedian(), ours.Krum(num_malicious_nodes=1)):
        first, last = replies(models(9)), replies(models(9))[::-1]
        a, b = aggregated(strategy, first), aggregated(strategy, last)
        assert all(np.array_equal(a[name], b[name]) for name in a)


def test_integer_arrays_take_the_maximum_and_types_stay() -> None:
    counted = [{"steps": np.int64(i), "w": np.float32([i])} for i in range(5)]
    got = aggregated(ours.FedTrimmedAvg(beta=0.2), replies(counted))
    assert got["steps"] == 4 and got["steps"].dtype == np.int64
    assert got["w"].dtype == np.float32 and got["w"][0] == 2.0


def test_one_byzantine_node_does_no_harm_and_replies_stay_as_they_were() -> None:
    answers = replies([{"w": np.float32([v])} for v in (1, 2, 3, 4, np.inf)])
    assert aggregated(ours.FedTrimmedAvg(beta=0.2), answers)["w"][0] == 3.0
    assert [m.content["arrays"]["w"].numpy()[0] for m in answers] == [1, 2, 3, 4, np.inf]


def test_no_replies_give_no_model() -> None:
    for strategy in (ours.FedTrimmedAvg(), ours.FedMedian(), ours.Krum(), ours.RobustStrategy("mean")):
        assert strategy.aggregate_train(1, []) == (None, None)


@pytest.mark.parametrize(
    ("rule", "options", "strategy"),
    [
        ("trimmed-mean", {"alpha": 0.2}, ours.FedTrimmedAvg(beta=0.2, rounding="ceil")),
        ("median", {}, ours.FedMedian()),
        ("krum", {"f": 2}, ours.Krum(num_malicious_nodes=2)),
        ("multi-krum", {"f": 2, "m": 3}, ours.MultiKrum(num_malicious_nodes=2, num_nodes_to_select=3)),
        ("mean", {}, theirs.FedAvg()),
    ],
)
def test_any_rule_by_its_name(rule: str, options: dict, strategy: theirs.FedAvg) -> None:
    mine, metrics = ours.RobustStrategy(rule, **options).aggregate_train(1, replies(models(9), list(range(1, 10))))
    other, their_metrics = strategy.aggregate_train(1, replies(models(9), list(range(1, 10))))
    for key in other:
        np.testing.assert_allclose(mine[key].numpy(), other[key].numpy(), rtol=1e-6, atol=1e-7)
    assert dict(metrics) == pytest.approx(dict(their_metrics))


def test_trimming_by_the_share_of_the_examples() -> None:
    """Of 24 examples 7.2 go on each side: 7.8 of the 3s and 1.8 of the 4s are left."""
    sent = [{"w": np.float32([value])} for value in (1, 2, 3, 4, 1000)]
    strategy = ours.RobustStrategy("trimmed-mean", share=0.3, cap=0.4)
    assert aggregated(strategy, replies(sent, [5, 1, 9, 2, 7]))["w"].tolist() == [3.1875]
    with pytest.raises(AggregationError, match="Client 4 holds 87.5 % of the weight"):
        aggregated(ours.RobustStrategy("trimmed-mean", share=0.3), replies(sent, [1, 1, 1, 0, 21]))


def test_what_stands_before_a_rule() -> None:
    sent = [{"w": np.float32([value])} for value in (1, 2, 3, 4, 1000)]
    assert aggregated(ours.RobustStrategy("nnm+median", f=1), replies(sent))["w"].tolist() == [2.5]


def test_a_rule_of_another_package_by_its_name(tmp_path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(install_shrunk_mean(tmp_path)))
    strategy = ours.RobustStrategy("shrunk-mean", clip=0.5, fraction_evaluate=0.0)
    assert aggregated(strategy, replies([{"w": np.float64([v])} for v in (1, 2, 6)]))["w"][0] == 1.5
    assert strategy.fraction_evaluate == 0.0


def test_clipping_is_around_the_model_that_was_sent() -> None:
    strategy = ours.RobustStrategy("centered-clipping", clip=1.5, fraction_train=0.0)
    strategy.configure_train(1, ArrayRecord({"w": Array(np.float64([2.0]))}), None, None)
    assert aggregated(strategy, replies([{"w": np.float64([v])} for v in (1, 3, 1000)]))["w"][0] == 2.5


@pytest.mark.parametrize(
    ("rule", "options", "message"),
    [
        ("krum", {}, "rule krum needs either f or alpha"),
        ("median", {"clip": 1.0}, "clip does not go with rule median: it may belong to rule centered-clipping"),
        ("median", {"fraction_trian": 1.0}, "fraction_trian does not go with rule median: no rule takes it"),
        ("norm-clipping", {"clip": 1.0}, "rule norm-clipping is for changes of a model"),
        ("meen", {}, "no aggregation rule 'meen'. Did you mean 'mean'"),
    ],
)
def test_mistakes_are_met_in_words(rule: str, options: dict, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        ours.RobustStrategy(rule, **options)
