"""The parts of every report: a page without scripts or requests that reads well on a phone, by day and by night."""

from __future__ import annotations

import html
from collections.abc import Collection, Iterable, Sequence
from datetime import date
from typing import Any


def page(title: str, body: str) -> str:
    """The whole file; `body` is markup, made of the parts below."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{text(title)} - fedincentive</title><link rel="icon" href="data:,"><style>{STYLE}</style></head>'
        f"<body><header><p>fedincentive, written {date.today():%Y-%m-%d}</p><h1>{text(title)}</h1></header>"
        f"{body}</body></html>\n"
    )


def table(
    titles: Sequence[str],
    rows: Iterable[Sequence[str]],
    numbers: int,
    *,
    total: bool = False,
    signed: Collection[str] = (),
) -> str:
    """A table; cells from column `numbers` on are numbers, the last row may be sums. The columns named in `signed` are
    in the colours of who is paid and who pays."""
    head = "".join(f"<th{_number(k, numbers)}>{text(title.replace('_', ' '))}</th>" for k, title in enumerate(titles))
    lines = [
        f"<tr>{''.join(cell(value, titles[k], k >= numbers, titles[k] in signed) for k, value in enumerate(row))}</tr>"
        for row in rows
    ]
    foot = f"<tfoot>{lines.pop()}</tfoot>" if total else ""
    return boxed(f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody>{foot}")


def boxed(inside: str, kind: str = "") -> str:
    """A table on a desk; on a phone each of its rows is a card, on which every value stands beside its title."""
    return f'<div class="scroll"><table class="cards{kind and f" {kind}"}">{inside}</table></div>'


def glossary(words: Sequence[tuple[str, str]]) -> str:
    return f"<dl>{''.join(f'<dt>{text(word)}</dt><dd>{text(meaning)}</dd>' for word, meaning in words)}</dl>"


def details(title: str, inside: str, *, open_: bool = False) -> str:
    return f"<details{' open' if open_ else ''}><summary>{text(title)}</summary>{inside}</details>"


def pre(words: str) -> str:
    return f'<div class="scroll"><pre>{text(words)}</pre></div>'


def text(value: Any) -> str:
    """Never markup, whatever an agent or a run is called."""
    return html.escape(str(value))


def cell(value: Any, title: str, number: bool, signed: bool = False) -> str:
    """One cell of a table; `signed` gives it the colour of its sign."""
    kinds = (["n"] if number else []) + (sign(str(value)) if signed else [])
    kind = f' class="{" ".join(kinds)}"' if kinds else ""
    return f'<td{kind} data-title="{text(title.replace("_", " "))}">{text(value)}</td>'


def sign(amount: str) -> list[str]:
    """The class of a written amount: paid to somebody, charged, or neither.

    >>> sign("-1,234.50"), sign("0.00"), sign("2"), sign("-")
    (['minus'], [], ['plus'], [])
    """
    if not any(digit in amount for digit in "123456789"):
        return []
    return ["minus"] if amount.startswith("-") else ["plus"]


def _number(column: int, numbers: int) -> str:
    return " class=n" if column >= numbers else ""


STYLE = """
:root{color-scheme:light dark;--line:#8884;--soft:#8881;--plus:#0072b2;--minus:#b84a00;--good:#00785a;--bad:#b3261e}
:root{--data:#5b6b7b}
@media (prefers-color-scheme:dark){:root{--plus:#56b4e9;--minus:#e69f00;--good:#4cc9a0;--bad:#ff8a80;--data:#9fb0c0}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:84rem;padding:1rem;font:1rem/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
header p{margin:0;opacity:.7;letter-spacing:.04em}
h1{margin:.1rem 0 1rem;font-size:1.6rem;line-height:1.2}
h2{margin-top:2.5rem;border-bottom:1px solid var(--line);font-size:1.3rem}
h3{margin:1.5rem 0 .3rem;font-size:1.05rem}
figure{margin:1rem 0;overflow-x:auto;background:#fff;border-radius:6px}
img{display:block;width:100%;margin:auto}
.scroll{overflow-x:auto;max-width:100%}
table{border-collapse:collapse;font-size:.88rem;font-variant-numeric:tabular-nums;overflow-wrap:normal}
th,td{padding:.3rem .6rem;border-bottom:1px solid var(--line);text-align:left;white-space:nowrap}
th{vertical-align:bottom;white-space:normal}
.words td,.words th{white-space:normal;vertical-align:top;overflow-wrap:anywhere}
.words tbody th{min-width:7rem}
.scroll td:first-child{position:sticky;left:0;max-width:min(20rem,45vw);white-space:normal;overflow-wrap:break-word}
.scroll td:first-child{background:Canvas}
tbody tr:nth-child(even){background:var(--soft)}
.scroll tbody tr:nth-child(even) td:first-child{background:linear-gradient(var(--soft),var(--soft)),Canvas}
tfoot td{font-weight:600;border-bottom:0}
th.n,td.n{text-align:right}
details{margin:.8rem 0;border:1px solid var(--line);border-radius:6px;padding:.4rem .8rem}
summary{cursor:pointer;padding:.3rem 0;font-weight:600}
pre{margin:.4rem 0;font-size:.8rem;line-height:1.4;white-space:pre-wrap;overflow-wrap:anywhere}
.verdict{margin:1rem 0;padding:.7rem 1rem;border:1px solid var(--line);border-left:.4rem solid var(--good)}
.verdict{border-radius:6px}
.verdict.bad{border:2px solid var(--bad);border-left-width:.4rem}
.verdict.bad strong{color:var(--bad)}
.verdict p,.verdict ul{margin:.2rem 0}
.small{font-size:.85rem;opacity:.8}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,22rem),1fr));gap:.5rem 2rem}
.chart{max-width:38rem}
.chart h3{margin:.8rem 0 .2rem}
.chart svg{display:block;width:100%;overflow:visible;font-size:.8rem;font-variant-numeric:tabular-nums}
.chart svg text{fill:currentColor}
.chart svg .line{fill:none;stroke:var(--data);stroke-width:2;vector-effect:non-scaling-stroke}
.chart svg .unseen{stroke-dasharray:2 5}
.lead{font-size:1.1rem}
.plus{color:var(--plus)}
.minus{color:var(--minus)}
dl{margin:.4rem 0}
dt{font-weight:600}
dd{margin:0 0 .4rem 0}
@media screen and (max-width:40rem){
.cards thead{display:none}
.cards,.cards tbody,.cards tfoot,.cards tr{display:block;width:100%}
.cards tr{padding:.4rem .3rem;border-bottom:1px solid var(--line)}
.cards td,.cards td.n{display:flex;justify-content:space-between;gap:1rem;padding:.1rem 0;border:0;text-align:right}
.cards td{white-space:normal;overflow-wrap:anywhere}
.cards td::before{content:attr(data-title);color:CanvasText;opacity:.75;text-align:left;flex:none;max-width:50%}
.cards td:empty{display:none}
.scroll .cards td:first-child{position:static;max-width:none;background:none;font-weight:600}
}
@media print{
@page{size:A4 landscape;margin:12mm}
:root{color-scheme:light}
html{font-size:9pt}
body{max-width:none;padding:0}
.charts{grid-template-columns:repeat(3,1fr)}
.scroll{overflow:visible}
.scroll table{width:100%;font-size:7.5pt}
.scroll th,.scroll td{white-space:normal;overflow-wrap:break-word;padding:.15rem .3rem}
.scroll td.n{white-space:nowrap}
.scroll td:first-child{position:static;max-width:none}
summary{break-after:avoid;list-style:none}
.settings pre{columns:3}
dl{columns:2}
dt{break-after:avoid}
thead{display:table-header-group}
tfoot{display:table-row-group}
table:not(:has(tr:nth-child(20))){break-inside:avoid}
tr,.chart,.verdict{break-inside:avoid}
h2,h3{break-after:avoid}
details::details-content{content-visibility:visible;height:auto}
}
"""
