"""Files for banks: ISO 20022 credit transfers (pain.001.001.09) and CSV. Names and IBANs are here, never in a ledger.

A payee map is a CSV file with the columns account, name, iban, bic; bic may be empty. The line of the account
`treasury` is who pays.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from xml.etree import ElementTree

from ..entry import TREASURY
from ..errors import LedgerError
from ..files import cell
from .export import decimal
from .payout import Payout, PayoutLine

NAMESPACE = "urn:iso:std:iso:20022:tech:xsd:pain.001.001.09"
COLUMNS = {"account", "name", "iban", "bic"}
LONGEST_NAME = 70  # in SEPA
BIC = "[A-Z0-9]{4}[A-Z]{2}[A-Z0-9]{2}([A-Z0-9]{3})?"


@dataclass(frozen=True)
class Payee:
    """Somebody with a bank account."""

    name: str
    iban: str
    bic: str


def is_iban(text: str) -> bool:
    """Whether the check digits fit (ISO 13616): moved to the end, with letters as numbers, the rest modulo 97 is 1.

    >>> is_iban("DE89370400440532013000"), is_iban("DE88370400440532013000")
    (True, False)
    """
    if not re.fullmatch(r"[A-Z]{2}\d{2}[A-Z0-9]{11,30}", text, re.ASCII):
        return False
    return int("".join(str(int(c, 36)) for c in text[4:] + text[:4])) % 97 == 1


def payees(text: str) -> dict[str, Payee]:
    """The payee map, every line checked."""
    reader = csv.DictReader(io.StringIO(text.removeprefix("\ufeff")))
    if not COLUMNS - {"bic"} <= set(reader.fieldnames or ()):
        raise LedgerError("The payee map needs a first line with the columns account, name, iban and perhaps bic.")
    found: dict[str, Payee] = {}
    for number, row in enumerate(reader, start=2):
        account, name, iban, bic = ((row.get(key) or "").strip() for key in ("account", "name", "iban", "bic"))
        iban, bic = re.sub(r"\s", "", iban).upper(), bic.upper()
        wrong = (
            "it names no account" if not account
            else f"{account!r} is there twice" if account in found
            else f"the name must be printable and have 1 to {LONGEST_NAME} characters"
            if not name.isprintable() or not 0 < len(name) <= LONGEST_NAME
            else "the check digits of the IBAN do not fit" if not is_iban(iban)
            else f"{bic!r} is not a BIC" if bic and not re.fullmatch(BIC, bic)
            else None
        )  # fmt: skip
        if wrong is not None:
            raise LedgerError(f"Line {number} of the payee map: {wrong}.")
        found[account] = Payee(name, iban, bic)
    return found


def credit_transfers(due: Payout, map_: Mapping[str, Payee], day: date, now: datetime) -> str:
    """One pain.001.001.09 message that pays every account that is owed something."""
    known = _known(due, map_, {TREASURY})
    payer, total = known[TREASURY], decimal(sum(line.open for line in due.credits), 10**due.digits)
    if not due.credits:
        raise LedgerError(f"Nobody is to be paid in the payout {due.message}; a bank takes no empty file.")
    root = ElementTree.Element("Document", xmlns=NAMESPACE)
    message = ElementTree.SubElement(root, "CstmrCdtTrfInitn")
    sums = {"NbOfTxs": str(len(due.credits)), "CtrlSum": total}
    created = now.replace(microsecond=0).isoformat()
    _fill(message, {"GrpHdr": {"MsgId": due.message, "CreDtTm": created, **sums, "InitgPty": {"Nm": payer.name}}})
    batch = ElementTree.SubElement(message, "PmtInf")
    euro = due.currency == "EUR"
    _fill(batch, {"PmtInfId": due.message, "PmtMtd": "TRF", **sums})
    if euro:
        _fill(batch, {"PmtTpInf": {"SvcLvl": {"Cd": "SEPA"}}})
    _fill(
        batch,
        {
            "ReqdExctnDt": {"Dt": day.isoformat()},
            "Dbtr": {"Nm": payer.name},
            "DbtrAcct": {"Id": {"IBAN": payer.iban}},
            "DbtrAgt": {"FinInstnId": {"BICFI": payer.bic} if payer.bic else {"Othr": {"Id": "NOTPROVIDED"}}},
            "ChrgBr": "SLEV" if euro else "SHAR",
        },
    )
    for line in due.credits:
        to, transfer = known[line.account], ElementTree.SubElement(batch, "CdtTrfTxInf")
        _fill(transfer, {"PmtId": {"EndToEndId": line.reference}})
        amount = ElementTree.SubElement(ElementTree.SubElement(transfer, "Amt"), "InstdAmt", Ccy=due.currency)
        amount.text = decimal(line.open, 10**due.digits)
        if to.bic:
            _fill(transfer, {"CdtrAgt": {"FinInstnId": {"BICFI": to.bic}}})
        _fill(
            transfer,
            {"Cdtr": {"Nm": to.name}, "CdtrAcct": {"Id": {"IBAN": to.iban}}, "RmtInf": {"Ustrd": _purpose(due)}},
        )
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def as_csv(due: Payout, map_: Mapping[str, Payee], day: date) -> str:
    """All open lines: those to pay, and those to invoice."""
    known = _known(due, map_, set())
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["payout", "reference", "direction", "account", "name", "iban", "bic", "amount", "currency", "date", "purpose"]
    )
    for direction, lines in (("pay", due.credits), ("invoice", due.invoices)):
        for line in lines:
            to = known.get(line.account, Payee("", "", ""))
            amount = decimal(abs(line.open), 10**due.digits)
            who = [cell(line.account), cell(to.name), to.iban, to.bic]
            end = [amount, due.currency, day.isoformat(), cell(_purpose(due))]
            writer.writerow([due.message, line.reference, direction, *who, *end])
    return out.getvalue()


def _known(due: Payout, map_: Mapping[str, Payee], others: set[str]) -> Mapping[str, Payee]:
    def needed(lines: list[PayoutLine]) -> set[str]:
        return {line.account for line in lines}

    for account in sorted((needed(due.credits) | others) - set(map_)):
        remedy = "who pays" if account == TREASURY else "where to pay it"
        raise LedgerError(f"The payee map has no line of the account {account!r}, which says {remedy}.")
    return map_


def _purpose(due: Payout) -> str:
    return f"fedincentive {'unwitnessed ' if due.unwitnessed else ''}{due.by} {due.of}"[:140]


def _fill(parent: ElementTree.Element, values: Mapping[str, object]) -> None:
    for name, value in values.items():
        child = ElementTree.SubElement(parent, name)
        if isinstance(value, Mapping):
            _fill(child, value)
        else:
            child.text = str(value)
