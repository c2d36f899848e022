"""No secret of an address in any file that a run leaves, on a terminal, or in the arguments of any process."""

import threading
from contextlib import suppress
from pathlib import Path

import pytest
from sample_files import space_text, study_text

from phaze_opt.cli.main import main

SECRET = "s3cr3t"
SPACE = space_text(min_area_fraction=0.0, num_tc=[4, 16], tc_width=[64], tc_depth=[64])
STUDY = study_text(name="few", truth="best-known")
SEARCH_ARGUMENTS = ["search", "--as", "phaze", "--model", "tiny", "--devices", "8", "--global-batch", "32"]
ONE_PLAN = ["--tensor-parallel", "1", "--no-range"]


def watch_arguments(ended: threading.Event, found: list[str]) -> None:
    """Look for the secret in the arguments of every process."""
    while not ended.wait(0.25):
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                if SECRET.encode() in path.read_bytes():
                    found.append(path.read_bytes().decode())


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="no /proc to look into")
@pytest.mark.parametrize(
    "uri",
    [
        pytest.param(f"http://me:{SECRET}@127.0.0.1:9", marks=pytest.mark.slow),
        f"postgresql://me:a/{SECRET}#b@127.0.0.1:9/db",
    ],
    ids=["http", "postgresql"],  # runners may show a test's name among the arguments of their processes
)
def test_a_search_and_a_study_leave_no_secret(
    uri: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    (tmp_path / "space.toml").write_text(SPACE)
    (tmp_path / "study.toml").write_text(STUDY)
    search = [*SEARCH_ARGUMENTS, *ONE_PLAN, "--space", "space.toml", "--trials", "2", "--strategy", "random"]
    found: list[str] = []
    ended = threading.Event()
    # A daemon: the run of a test that fails must end.
    watcher = threading.Thread(target=watch_arguments, args=(ended, found), daemon=True)
    watcher.start()
    # What is resumed and what studies deliver goes the same way, whatever the store.
    more = [[*search, "--json", "--resume"], ["study", "run", "study.toml"]] if uri.startswith("http") else []
    commands = search, *more
    for arguments in commands:
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        assert not stop.value.code, arguments
    out, words = capfd.readouterr()
    # Each command says it at its end; one that outlasts the first try to deliver also says it then.
    early = words.count("goes on untracked and is not in")
    assert words.count("is not in") - early == len(commands)
    assert SECRET not in out + words
    ended.set()
    watcher.join()
    assert found == []
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 5
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []


@pytest.mark.parametrize("uri", [f"postgresql://u:{SECRET}@[::1/db", f"http://u:{SECRET}@h[/x", f"u:{SECRET}@h/x"])
@pytest.mark.parametrize("command", [SEARCH_ARGUMENTS, ["ui"], ["study", "run", "study.toml"]], ids=lambda c: c[0])
def test_a_broken_address_ends_every_command_before_it_starts(
    command: list[str], uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "space.toml").write_text(SPACE)
    (tmp_path / "study.toml").write_text(STUDY)
    with pytest.raises(SystemExit) as stop:
        main([*command, "--tracking-uri", uri])
    captured = capsys.readouterr()
    assert stop.value.code == 2
    assert "--tracking-uri" in captured.err
    assert SECRET not in captured.out + captured.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["space.toml", "study.toml"]
