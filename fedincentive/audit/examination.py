"""One audit: is what an agent says it delivered in a step what its site gives?

    s_max       the site has as many points as were enrolled
    delivered   it is a number of points that the site can give
    records     the first s of the order are the committed ones, differ from each other, and are valid
    tags        those that were enrolled are of these records
    update      made again from the broadcast model, the records and the seed, it has the signed digest, bit for bit
    openings    k drawn records are what they say, by somebody who knows their sources

Only hashes and a verdict leave the site. Bit for bit needs the same machine type, versions and threads as the agent's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..identity import digest
from ..messages import Update
from ..payments import quantise
from ..provenance import beacon, records
from ..provenance.records import Commitment, order_seed

log = logging.getLogger("fedincentive")
Valid = Callable[[bytes], bool]
Recognised = Callable[[str, int, bytes], bool]  # (agent, index, record): is it what its source says?


class AuditedSite(Protocol):
    """What an auditor needs of a site. One with data also has `records()` and `reorder(seed)`; one that keeps account
    of its training has `trained(step)`, the points of a step."""

    s_max: float
    whole: bool

    def update(self, w: Update, points: float, step: int, s: Mapping[str, float]) -> Update:
        """d_i from w on this many points."""


@dataclass(frozen=True)
class Delivery:
    """What an agent says it did in a step: the integers and the digest that it signed, and what it answered to."""

    agent: str
    step: int
    w: Update
    s: Mapping[str, float]  # everyone's, as broadcast in that step
    delivered: int
    update: str  # sha256
    s_max: int  # enrolled
    scale: int
    commitment: str | None = None
    order: str = ""  # the value that draws the order of points
    draw: str = ""  # the value that draws the records to open
    openings: int = 0
    tags: str | None = None  # the digest of those that were enrolled


@dataclass(frozen=True)
class Examination:
    """How an audit ended: why it failed, or "" where it passed, what was checked, and how many records were opened."""

    why: str
    checked: tuple[str, ...]
    opened: int = 0

    @property
    def passed(self) -> bool:
        return not self.why


class _Failed(Exception):
    """The audit ends here, with this reason."""


def examine(
    said: Delivery,
    site: AuditedSite,
    kept: Commitment | None = None,
    *,
    valid: Valid | None = None,
    recognised: Recognised | None = None,
    tag_key: bytes | None = None,
) -> Examination:
    """Check a delivery at the agent's site; `kept` is the site's own commitment, which the terms must name, `tag_key`
    the key of the tags."""
    checked: list[str] = []
    try:
        points = _points(said, site, checked)
        if hasattr(site, "reorder"):
            site.reorder(order_seed(said.order, said.agent))
        own = site.records() if hasattr(site, "records") else None
        drawn = [] if own is None else _records(said, own, kept, round(points), valid, checked)
        if own is not None and said.tags is not None:
            _tags(said, own, tag_key, checked)
        again = digest(site.update(said.w, points, said.step, said.s))
        if again != said.update:
            raise _Failed(f"made again, the update is {again[:16]}..., signed is {said.update[:16]}...")
        checked.append(f"the update, made again from {points:g} points, has the signed digest {again[:16]}...")
        opened = 0 if own is None else _open(said, own, drawn, recognised, checked)
        return Examination("", tuple(checked), opened)
    except _Failed as failure:
        return Examination(str(failure), tuple(checked))
    except Exception as error:
        return unauditable(said, error, checked)


def unauditable(said: Delivery, error: Exception, checked: Sequence[str] = ()) -> Examination:
    """A site that cannot be audited counts as one that did not deliver. A second auditor has to find the same."""
    log.warning("The audit of agent %s in step %d ends with an error", said.agent, said.step, exc_info=error)
    words = f"the site cannot be audited: {type(error).__name__}: {error}"
    return Examination("".join(c for c in words if c.isprintable()), tuple(checked))


def _points(said: Delivery, site: AuditedSite, checked: list[str]) -> float:
    """The points that were delivered, as the agent trained on them."""
    has = quantise(float(site.s_max), said.scale)
    if has < said.s_max:  # it may be counted with fewer: as many as its deposit covers
        raise _Failed(f"the site has {site.s_max:g} points, {said.s_max / said.scale:g} were enrolled")
    if not 0 <= said.delivered <= said.s_max:
        raise _Failed(f"{said.delivered / said.scale:g} points are said, enrolled were {said.s_max / said.scale:g}")
    points = float(site.s_max) if said.delivered == has else said.delivered / said.scale
    if site.whole and points != round(points):
        raise _Failed(f"{points:g} points are said, the site gives whole ones")
    trained = site.trained(said.step) if hasattr(site, "trained") else None
    if trained is not None and quantise(float(trained), said.scale) != said.delivered:
        raise _Failed(f"{points:g} points are said, the site trained on {trained:g}")
    checked.append(f"the site has the {site.s_max:g} points that were enrolled; {points:g} are said to be delivered")
    return points


def _records(
    said: Delivery,
    own: Sequence[bytes],
    kept: Commitment | None,
    count: int,
    valid: Valid | None,
    checked: list[str],
) -> list[int]:
    """The first `count` records of the order, all of them committed, different and valid."""
    if said.commitment is None or records.read(said.commitment) is None:
        raise _Failed("the site has records, but none were committed")
    if kept is None or str(kept) != said.commitment or len(own) != len(kept):
        raise _Failed("the site does not have the commitment that was enrolled, or other records")
    drawn = [int(j) for j in records.order(order_seed(said.order, said.agent), len(own))[:count]]
    if (strange := kept.strange(own, drawn)) is not None:
        raise _Failed(f"record {strange} is not the one that was committed")
    seen: dict[bytes, int] = {}
    for j in drawn:
        if (twin := seen.setdefault(own[j], j)) != j:
            raise _Failed(f"record {j} is record {twin} again")
        if valid is not None and not valid(own[j]):
            raise _Failed(f"record {j} is not valid")
    told = "" if valid is None else ", all valid"
    checked.append(f"the first {count} of the order are {count} different records under the enrolled root{told}")
    return drawn


def _tags(said: Delivery, own: Sequence[bytes], key: bytes | None, checked: list[str]) -> None:
    """The tags by which copies at other sites were looked for are those of these records."""
    if key is None:
        checked.append("the tags that were enrolled were not checked: their key is not here")
    elif records.tags_digest(records.enrolled_tags(key, own)) != said.tags:
        raise _Failed("the tags that were enrolled are not those of the site's records")
    else:
        checked.append(f"the enrolled tags are those of the {len(own)} records")


def _open(
    said: Delivery, own: Sequence[bytes], drawn: Sequence[int], recognised: Recognised | None, checked: list[str]
) -> int:
    """The drawn records, held against their sources."""
    chosen = [drawn[k] for k in beacon.some(said.draw, f"open\n{said.agent}", len(drawn), said.openings)]
    for j in chosen:
        if recognised is not None and not recognised(said.agent, j, own[j]):
            raise _Failed(f"record {j} is not what its source says")
    by = "taken as they are: nobody here knows their sources" if recognised is None else "as their sources say"
    checked.append(f"{len(chosen)} drawn records were opened, {by}")
    return len(chosen)
