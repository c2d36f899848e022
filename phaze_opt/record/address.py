"""Addresses of databases and servers: parsed once, by SQLAlchemy, and shown without their secrets."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from phaze_opt.errors import InputError

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

SERVERS = ("http", "https")
HIDDEN = "***"
_HOST = re.compile(r"[A-Za-z0-9._~%-]*|[0-9A-Fa-f:.%]+")
_LEAST_SECRET = 3
"""Characters that a secret must have to be looked for in other texts."""


@dataclass(frozen=True, slots=True)
class Address:
    """An address of a database or a server.

    Attributes:
        text: as given, secrets included: never print, log or store it.
        scheme: in lower case and without a driver, as ``postgresql``.
        shown: without user, password, query and fragment; fit for a screen, a file or a log.
        database: a database's name, or a sqlite store's file; empty for none.
    """

    text: str = field(repr=False)
    scheme: str
    shown: str
    database: str = ""
    _secrets: tuple[str, ...] = field(default=(), repr=False)

    @property
    def is_server(self) -> bool:
        """Whether it is that of an HTTP server."""
        return self.scheme in SERVERS

    def hide_in(self, text: str) -> str:
        """A text, as of an error from elsewhere, without the address's secrets."""
        text = text.replace(self.text, self.shown)
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return text


def parse_address(text: str, *, source: str) -> Address:
    """The address that a user gave.

    Args:
        text: as ``postgresql://user:password@host:port/database``, ``sqlite:///file`` or ``http://host:port``.
        source: the option or variable that it came from, for messages.

    Raises:
        InputError: it is no address; the message shows no secret.
    """
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    text = text.strip()
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:
        raise _malformed(text, source) from error
    scheme = url.drivername.partition("+")[0].lower()
    is_file = scheme == "sqlite"
    if (
        not _HOST.fullmatch(url.host or "")
        or (scheme in SERVERS and not url.host)
        or (not is_file and scheme not in SERVERS and "@" in (url.database or ""))
        or (url.username is not None and _ends_in_query(text.partition("@")[2]))
    ):
        raise _malformed(text, source)
    query = [value for values in url.normalized_query.values() for value in values]
    return Address(
        text=text,
        scheme=scheme,
        shown=_shown(url),
        database=url.database or "",
        _secrets=tuple(str(s) for s in (url.password, *query) if s and len(str(s)) >= _LEAST_SECRET),
    )


def _ends_in_query(after_user: str) -> bool:
    """Whether the host is what a password had between an @ and a ?, so that the host that was meant is in the query."""
    return any("@" in item.partition("=")[0] for item in after_user.partition("?")[2].split("&"))


def _shown(url: URL) -> str:
    """The parts of an address that hold no secret."""
    user = f"{HIDDEN}@" if url.username or url.password else ""
    host = f"[{url.host}]" if ":" in (url.host or "") else url.host or ""
    port = "" if url.port is None else f":{url.port}"
    name = re.split(r"[?#]", url.database or "", maxsplit=1)[0]
    return f"{url.drivername}://{user}{host}{port}{'' if url.database is None else f'/{name}'}"


def _malformed(text: str, source: str) -> InputError:
    scheme, found, _ = text.partition("://")
    shown = f"{scheme}://{HIDDEN}" if found and scheme.replace("+", "").isalnum() else HIDDEN
    message = (
        f"'{shown}' is no address; give SCHEME://USER:PASSWORD@HOST:PORT/NAME, with %40 for an @ in the password "
        "and %5B for a ["
    )
    return InputError(message, source=source)
