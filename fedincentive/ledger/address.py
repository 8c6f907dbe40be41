"""PostgreSQL addresses as they may be shown: nobody reads a password in a message, a log, a report or a traceback."""

from __future__ import annotations

import re

from ..errors import LedgerError

SCHEMES = ("postgresql://", "postgres://")
SHOWN = ("user", "host", "hostaddr", "port", "dbname")  # all else may be a secret, or the name of a file that holds one
SECRET = r"pass|secret|key|token|options|service"
HIDDEN = "postgresql://..."
LEFT_OUT = "its words are left out, as they repeat a part of the address"
PAIRS = r"(?is)\s*(host|hostaddr|port|dbname|user|password|passfile|service|options|application_name|ssl\w+)\s*=.*"


class Address:
    """An address with its secrets apart."""

    def __init__(self, given: str) -> None:
        from psycopg.conninfo import conninfo_to_dict

        self.given = given
        self.shown = HIDDEN
        try:
            parts = {key: str(value) for key, value in conninfo_to_dict(given).items()}
        except Exception as error:  # psycopg repeats what it cannot read, which may be the password
            raise LedgerError(
                f"The address {HIDDEN} of the ledger cannot be read ({type(error).__name__}): write it as "
                "postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with other characters than letters, digits and _.- in "
                "the password as %XX."
            ) from None
        self._secrets = {value for key, value in parts.items() if value and re.search(SECRET, key)}
        # a password with @ / or : in it spills into the host, the port or the database
        if all(re.fullmatch(r"[\w.\-]*" if key != "host" else r"[\w.\-,:/\[\]]*", parts.get(key, "")) for key in SHOWN):
            self.shown = _written(parts)

    def __repr__(self) -> str:
        return f"Address({self.shown})"

    def words(self, error: Exception) -> str:
        """What the driver or the server says, in one line, unless it repeats what must not be shown."""
        text = str(error).strip()
        if self.shown == HIDDEN or any(secret in text for secret in self._secrets):
            return f"{type(error).__name__}; {LEFT_OUT}"
        return text.splitlines()[0].rstrip(".") if text else type(error).__name__

    def cause(self, error: Exception) -> Exception | None:
        """The error as a cause in a traceback, or nothing where its words must not be shown."""
        return None if LEFT_OUT in self.words(error) else error


def _written(parts: dict[str, str]) -> str:
    user = f"{parts['user']}@" if parts.get("user") else ""
    host = parts.get("host") or parts.get("hostaddr", "")
    port = f":{parts['port']}" if parts.get("port") else ""
    return f"postgresql://{user}{host}{port}/{parts.get('dbname', '')}"


def is_address(target: str) -> bool:
    """Whether a ledger is on a server; what is neither that nor a path is refused, without repeating it."""
    if target.startswith(SCHEMES):
        return True
    if "://" in target or re.fullmatch(PAIRS, target):
        raise LedgerError(
            "A ledger is a file path or an address that begins with postgresql:// (in small letters): "
            "postgresql://USER:PASSWORD@HOST:PORT/DATABASE instead of KEY=VALUE pairs or another scheme."
        )
    return False


def shown(target: str) -> str:
    """A ledger's path or address for people."""
    try:
        return Address(target).shown if is_address(target) else target
    except (LedgerError, ImportError):
        return HIDDEN
