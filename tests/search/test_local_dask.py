"""A Dask cluster of this machine: whoever else reaches its ports runs nothing."""

import multiprocessing
import socket
import ssl
from pathlib import Path

import pytest
from kits.planted import plant_modules

from phaze_opt.search.evaluators import LOCAL, open_dask_client

MOMENT_S = 1.0


def answer_without_key(address: str) -> bytes:
    """What a port says to somebody who has no certificate and asks for none."""
    blind = ssl.create_default_context()
    blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port)), timeout=MOMENT_S) as plain:
        try:
            with blind.wrap_socket(plain) as secure:
                secure.sendall(b"GET / HTTP/1.0\r\n\r\n")
                return secure.recv(1)
        except OSError:
            return b""


@pytest.mark.parametrize("num_workers", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore")
def test_no_port_answers_a_stranger(num_workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import psutil
    from distributed import Client, Security

    planted = plant_modules(tmp_path)
    monkeypatch.chdir(tmp_path)
    with open_dask_client(LOCAL, num_workers=num_workers) as client:
        assert not num_workers or client.submit(sum, (1, 2)).result() == 3
        here = psutil.Process()
        listening = [
            f"{known.laddr.ip}:{known.laddr.port}"
            for process in (here, *here.children(recursive=True))
            for known in process.net_connections()
            if known.status == psutil.CONN_LISTEN
        ]
        # The scheduler, and a nanny and a process a worker; no pages.
        assert len(listening) == 1 + 2 * num_workers
        assert all(address.startswith("127.0.0.1:") for address in listening)
        for address in listening:
            assert answer_without_key(address) == b""
            for scheme, security in (("tcp", None), ("tls", Security.temporary())):
                with pytest.raises(OSError, match="Timed out|reset by peer|TLS certificate does not match"):
                    Client(f"{scheme}://{address}", timeout=MOMENT_S, security=security)
    assert not planted.has_run
    assert not multiprocessing.active_children()
