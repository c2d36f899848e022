"""Addresses: what is parsed, what is refused, and that no secret is shown."""

import pytest

from phaze_opt.errors import InputError
from phaze_opt.record.address import parse_address

WHOLE = {
    "postgresql://u:se#cret@h/db": "postgresql://***@h/db",
    "postgresql://u:se/cret@h:5432/db": "postgresql://***@h:5432/db",
    "postgresql://u:se?cret@h/db": "postgresql://***@h/db",
    "postgresql+psycopg://u:secret@[::1]:5432/db": "postgresql+psycopg://***@[::1]:5432/db",
    "postgresql://h:9/db?user=u&password=secret": "postgresql://h:9/db",
    "postgresql://u:p@h/db?password=sec@ret": "postgresql://***@h/db",
    "http://u:secret@h:5000/x?token=secret#secret": "http://***@h:5000/x",
    "http://127.0.0.1:5000": "http://127.0.0.1:5000",
    "sqlite:////tmp/a@b/x.db": "sqlite:////tmp/a@b/x.db",
}
BROKEN = (
    "postgresql://u:a@secret@h/db",
    "postgresql://u:a@b/secret@h/db",
    "postgresql://u:a@secret?b@h/db",
    "http://u:a@secret?b@h/",
    "postgresql://u:secret@[::1/db",
    "postgresql://u:secret",
    "http://h[/secret]",
    "http://",
    "secret",
    "",
)


@pytest.mark.parametrize("text", WHOLE)
def test_an_address_is_shown_without_its_secrets(text):
    address = parse_address(text, source="--storage")
    assert address.shown == WHOLE[text]
    assert "secret" not in repr(address)
    assert address.hide_in(f"no answer from {text}") == f"no answer from {WHOLE[text]}"
    if "cret" in text:
        secret = next(secret for secret in ("se#cret", "se/cret", "se?cret", "sec@ret", "secret") if secret in text)
        assert secret not in address.hide_in(f"wrong password {secret}")


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_address_is_refused_without_its_secrets(text):
    with pytest.raises(InputError) as caught:
        parse_address(text, source="--storage")
    assert caught.value.source == "--storage"
    assert "secret" not in str(caught.value)


def test_schemes_and_names():
    address = parse_address(" postgresql+psycopg://u@h/db ", source="x")
    assert (address.scheme, address.database, address.is_server) == ("postgresql", "db", False)
    assert parse_address("https://h", source="x").is_server
    assert parse_address("sqlite:///some/file.db", source="x").database == "some/file.db"
