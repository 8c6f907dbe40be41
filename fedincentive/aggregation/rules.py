"""Robust rules by the names used in configurations, and all that is known about each in one object.

Runs, FedML's defenses, Flower's strategies and the command line take what they list and call from here. A new rule of
ours is a function and a line in OURS; another package offers its own as a Rule in its pyproject.toml:

    [project.entry-points."fedincentive.rules"]
    my-rule = "my_package:MY_RULE"
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..checks import nearest
from ..errors import SettingError
from ..registry import Registry
from ..settings import Settings
from .clipping import centered_clipping, norm_clipping
from .coordinatewise import median, trim_count, trimmed_mean, weighted_mean
from .distance_based import krum, krum_selection, multi_krum
from .geometric import geometric_median
from .mixing import arc, bucketing, clip_updates, nnm
from .near_median import bulyan, meamed
from .subsets import caf, mda, monna, smea
from .tiles import StoredUpdates

# Exactly one of each row must be given where a rule takes any of it: how many clients to withstand (per side, in all,
# as a part of them or of the weight), the longest update, the point to clip around.
NEEDED = (("trim", "f", "alpha", "share"), ("clip",), ("center",))


def named(*same: str, **other: str) -> dict[str, str]:
    """From common options to a function's own: those of the same name, and those it calls otherwise."""
    return {**{name: name for name in same}, **other}


@dataclass(frozen=True, eq=False, repr=False)
class Rule:
    """A rule over updates: arrays, or mappings of them as in every run. It is called like its function.

    `options` says which common options the function takes, and what it calls them: weights (one per client), trim (a
    count per side), alpha (a part of the clients), share (a part of the weight), cap (the most one may hold of it), f
    (how many may lie), m (how many to average), normalize, clip (the longest update), center (the last aggregate, or
    the model a round started from), trusted (a client's number), bucket (clients in one), seed, convention, nan_policy,
    threads. A rule that takes f is given trim_count(alpha, n) where only alpha is known; share goes before alpha.

    >>> import numpy as np
    >>> def middle(updates, clip):
    ...     low, high = np.min(updates, axis=0), np.max(updates, axis=0)
    ...     return np.clip((low + high) / 2, -clip, clip)
    >>> rule = Rule("middle", middle, options=named("clip"), conventions="Half of smallest plus largest.")
    >>> rule.use([np.float64([1, 50]), np.float64([3, 60])], clip=10, alpha=0.1)
    array([ 2., 10.])
    """

    name: str
    call: Callable[..., Any]
    options: Mapping[str, str] = field(default_factory=dict)
    least: Callable[[int, int], int] = lambda n, f: 1  # updates it needs when n answer and f should be withstood
    works_on_files: bool = False  # reads updates piece by piece, and writes a new one: never a client's own arrays
    robust: bool = True  # then FedML and Flower do not weigh by the example counts that clients say themselves
    on_models: bool = True  # else only for changes of a model, and not for hosts whose clients send whole ones
    half: bool = False  # withstands any minority of updates, whatever alpha is
    selects: Callable[..., list[int]] | None = None  # the clients it averages, for hosts that average in their own way
    kappa: Callable[[int, int], float] | None = None  # with n clients of which f < n/2 lie: see bounds.py
    defense: str = ""  # FedML's defense_type, where it is not the name with underscores
    conventions: str = ""  # a sentence or two

    def __repr__(self) -> str:
        return f"Rule({self.name!r})"

    def __call__(self, updates: Any, *args: Any, **options: Any) -> Any:
        """The function itself, with its own options."""
        return self.call(updates, *args, **options)

    def use(self, updates: Sequence[Any] | StoredUpdates, **common: Any) -> Any:
        """The rule with those of the common options it takes; None is one that is not given.

        >>> import numpy as np
        >>> rule("multi-krum").use([np.float64([v]) for v in (1.0, 1.5, 2.0, 2.5, 50.0)], alpha=0.2, clip=3.0)
        array([1.75])
        """
        if isinstance(updates, StoredUpdates) and not self.works_on_files:
            return updates.whole(lambda held: self.use(held, **common))
        return self.call(updates, **self.arguments(len(updates), common))

    def in_run(self, updates: Sequence[Any], settings: Settings, weights: Sequence[float] | None, last: Any) -> Any:
        """The rule with the settings of a run; `last` is what it gave in the round before."""
        s = settings
        by = {"share": s.share, "cap": s.cap} if s.share is not None and "share" in self.options else {"alpha": s.alpha}
        return self.use(updates, **by, normalize=s.normalize, clip=s.clip, weights=weights, center=last)

    def arguments(self, n: int, common: Mapping[str, Any]) -> dict[str, Any]:
        """What the function gets, by its own names, with n updates."""
        given = {option: value for option, value in common.items() if value is not None}
        if "alpha" in given and "alpha" not in self.options:
            given.setdefault("f", trim_count(given["alpha"], n))
        return {self.options[option]: value for option, value in given.items() if option in self.options}

    def withstands(self, n: int, alpha: float) -> int | None:
        """How many of n updates may be anything; None where the rule only bounds what each of them can do.

        >>> [rule(name).withstands(10, 0.2) for name in ("trimmed-mean", "median", "norm-clipping")]
        [2, 4, None]
        """
        if self.half:
            return (n - 1) // 2
        return trim_count(alpha, n) if "alpha" in self.takes else None

    @property
    def takes(self) -> list[str]:
        """The common options that have an effect."""
        return [*self.options, *(["alpha"] if "f" in self.options and "alpha" not in self.options else [])]

    @property
    def needs(self) -> list[list[str]]:
        """Groups of options; exactly one of each must be given.

        >>> rule("krum").needs, rule("median").needs
        ([['f', 'alpha']], [])
        """
        groups = [[option for option in group if option in self.takes] for group in NEEDED]
        return [group for group in groups if group]

    def check(self, given: Collection[str], spelt: Callable[[str], str] = str) -> None:
        """Refuse options that are missing or would have no effect; `spelt` says how the user writes an option."""
        this = spelt("rule")
        for option in given:
            if option not in self.takes:
                others = [other.name for other in rules() if option in other.takes]
                where = f"it may belong to {this} {', '.join(others)}" if others else "no rule takes it"
                raise SettingError(f"{spelt(option)} does not go with {this} {self.name}: {where}.")
        for group in self.needs:
            if len({*group} & {*given}) != 1:
                either = "either " if len(group) > 1 else ""
                raise SettingError(f"{this} {self.name} needs {either}{' or '.join(map(spelt, group))}.")


def of_medians(n: int, f: int) -> float:
    return 4 * (1 + f / (n - 2 * f)) ** 2


OURS = (
    Rule(
        "mean",
        weighted_mean,
        named("weights", "nan_policy", "threads"),
        works_on_files=True,
        robust=False,
        defense="weighted_mean",
        conventions="The weighted mean, FedAvg's own; one client that lies can move it anywhere.",
    ),
    Rule(
        "trimmed-mean",
        trimmed_mean,
        named("trim", "alpha", "share", "cap", "weights", "normalize", "nan_policy", "threads"),
        least=lambda n, f: max(3, 2 * f + 1),
        works_on_files=True,
        kappa=lambda n, f: f * (n - f) / (n - 2 * f) ** 2,
        defense="coordinate_trimmed_mean",
        conventions="Per coordinate without the k smallest and k largest values, k the smallest with k/n >= alpha; "
        "2k < n. The trim is by count, also with weights; with a share instead, that much of the weight is cut off "
        "each end, after weights were cut off at the cap, and nobody may hold more than half.",
    ),
    Rule(
        "median",
        median,
        named("nan_policy", "threads"),
        works_on_files=True,
        kappa=of_medians,
        defense="coordinate_median",
        half=True,
        conventions="Per coordinate the middle value, or the mean of the two middle ones.",
    ),
    Rule(
        "krum",
        krum,
        named("f", "convention", "threads"),
        least=lambda n, f: 2 * f + 3,
        works_on_files=True,
        selects=partial(krum_selection, m=1),
        defense="robust_krum",  # FedML has a krum
        conventions="The update with the smallest sum of squared distances to its n - f - 2 nearest others, "
        "n >= 2f + 3; by convention byzfl to n - f - 1, n >= 2f + 1.",
    ),
    Rule(
        "multi-krum",
        multi_krum,
        named("f", "m", "convention", "threads"),
        least=lambda n, f: 2 * f + 3,
        works_on_files=True,
        selects=krum_selection,
        conventions="The mean of the m updates with the smallest Krum scores, n - f when m is not given; n >= 2f + 3.",
    ),
    Rule(
        "geometric-median",
        geometric_median,
        named("weights", "nan_policy", "threads"),
        half=True,
        works_on_files=True,
        kappa=of_medians,
        conventions="The point with the smallest weighted sum of distances to the updates.",
    ),
    Rule(
        "centered-clipping",
        centered_clipping,
        named("center", "nan_policy", "threads", clip="radius"),
        conventions="The center plus the mean of the differences from it, none longer than the clip.",
    ),
    Rule(
        "norm-clipping",
        norm_clipping,
        named("weights", "nan_policy", "threads", clip="max_norm"),
        works_on_files=True,
        on_models=False,
        conventions="The weighted mean of the updates, none longer than the clip.",
    ),
    Rule(
        "meamed",
        meamed,
        named("f", "threads"),
        least=lambda n, f: 2 * f + 1,
        conventions="Per coordinate the mean of the n - f values nearest to the median; n >= 2f + 1.",
    ),
    Rule(
        "bulyan",
        bulyan,
        named("f", "threads"),
        least=lambda n, f: 4 * f + 3,
        defense="robust_bulyan",  # FedML has a bulyan
        conventions="n - 2f updates chosen by Krum one after the other, then per coordinate the mean of the n - 4f of "
        "their values nearest to their median; n >= 4f + 3.",
    ),
    Rule(
        "mda",
        mda,
        named("f", "threads"),
        least=lambda n, f: 2 * f + 1,
        works_on_files=True,
        conventions="The mean of the n - f updates with the smallest largest distance between two; n >= 2f + 1.",
    ),
    Rule(
        "monna",
        monna,
        named("f", "trusted", "threads"),
        least=lambda n, f: 2 * f + 1,
        works_on_files=True,
        conventions="The mean of the n - f updates nearest to that of a trusted client, the first when none is named.",
    ),
    Rule(
        "smea",
        smea,
        named("f", "threads"),
        least=lambda n, f: 2 * f + 1,
        works_on_files=True,
        conventions="The mean of the n - f updates whose covariance has the smallest largest eigenvalue; f is small.",
    ),
    Rule(
        "caf",
        caf,
        named("f", "threads"),
        least=lambda n, f: 2 * f + 1,
        works_on_files=True,
        conventions="The weighted mean of least variance while outliers along its direction lose weight; n >= 2f + 1.",
    ),
)


@dataclass(frozen=True, eq=False)
class Before:
    """What may stand before a rule, as in nnm+median: it makes other updates of those there are."""

    name: str
    call: Callable[..., list[Any]]
    options: tuple[str, ...]
    conventions: str
    on_models: bool = True


BEFORE = {
    before.name: before
    for before in (
        Before("nnm", nnm, ("f", "threads"), "Every update becomes the mean of the n - f nearest to it."),
        Before("bucketing", bucketing, ("bucket", "seed", "threads"), "The means of random buckets of clients."),
        Before("arc", arc, ("f", "threads"), "The 2f (n - f) / n longest are shortened to the next.", on_models=False),
        Before("clipping", clip_updates, ("clip", "threads"), "None is longer than the clip.", on_models=False),
    )
}


def composed(name: str) -> Rule:
    """The rule that a name with + stands for: what is before the last rule makes its updates, from left to right."""
    *first, last = name.split("+")
    unknown = [word for word in first if word not in BEFORE]
    if unknown:
        raise SettingError(f"{name!r}: {unknown[0]!r} cannot stand before a rule.{nearest(unknown[0], BEFORE)}")
    befores, base = [BEFORE[word] for word in first], rule(last)
    if "center" in base.options:
        raise SettingError(f"{name!r}: rule {last} clips around a center, and nothing can stand before it.")
    counts = "f" if "f" in base.options else "trim" if "trim" in base.options else ""
    kept = [option for option in base.options if option not in ("trim", "alpha", "f", "share", "cap", "weights")]
    options = dict.fromkeys([*(["f"] if counts else []), *(o for each in befores for o in each.options), *kept])

    def call(updates: Iterable[Any], **given: Any) -> Any:
        for before in befores:
            updates = before.call(updates, **{option: given[option] for option in before.options if option in given})
        own = {counts: given["f"]} if counts and "f" in given else {}
        own |= {option: given[option] for option in kept if option in given}
        return base.call(updates, **{base.options[option]: value for option, value in own.items()})

    def mixed(n: int, f: int) -> float:
        return 8 * f / (n - f) * (base.kappa(n, f) + 1) if base.kappa is not None else math.inf

    return Rule(
        name,
        call,
        named(*options),
        least=base.least,
        kappa=mixed if first == ["nnm"] and base.kappa is not None else None,
        on_models=base.on_models and all(before.on_models for before in befores),
        conventions=" ".join([*(before.conventions for before in befores), f"Then {last}: {base.conventions}"]),
    )


REGISTRY = Registry("fedincentive.rules", {ours.name: ours for ours in OURS}, "aggregation rule")


def names() -> list[str]:
    """Every name `rule` knows, ours first."""
    return REGISTRY.names()


def rule(name: str) -> Rule:
    """The aggregation rule of that name, to be called with the updates and its own settings.

    nnm, bucketing, arc and clipping may stand before it, joined by +.

    >>> import numpy as np
    >>> rule("median")([np.float32([1]), np.float32([7]), np.float32([3])])
    array([3.], dtype=float32)
    >>> rule("nnm+trimmed-mean").use([np.float64([v]) for v in (1.0, 2.0, 3.0, 4.0, 50.0)], f=1)
    array([2.5])
    """
    if "+" in name:
        return composed(name)
    if name in BEFORE:
        raise SettingError(f"{name!r} makes updates for a rule, which is to come after it: {name}+trimmed-mean, say.")
    found = REGISTRY.find(name)
    if not isinstance(found, Rule) or found.name != name:
        raise SettingError(f"{REGISTRY.whose(name)} is {found!r}: make it an aggregation.Rule of that name.")
    return found


def rules() -> list[Rule]:
    """Every rule; one of another package that cannot be loaded is left out with a warning."""
    found = []
    for name in names():
        try:
            found.append(rule(name))
        except SettingError as error:
            warnings.warn(str(error), stacklevel=2)
    return found
