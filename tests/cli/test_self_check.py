"""``phaze-opt certify`` has independent code check what it proved before it says so, by real provers and checkers."""

import json
from pathlib import Path

import pytest
from command_runs import printed, refused, run_json
from sample_files import space_text

from phaze_opt.certify.check import worlds as checking
from phaze_opt.errors import CertificateError

JOB = ["certify", "--model", "tiny", "--devices", "16", "--global-batch", "64", "--as", "phaze", "--no-tracking"]


@pytest.fixture
def arguments(tmp_path):
    sizes = {"num_tc": [4, 16], "tc_width": [64], "tc_depth": [64], "glb_mb": [8, 16], "hbm_gb": [80]}
    (tmp_path / "space.toml").write_text(space_text(min_area_fraction=0.0, micro_batch=[1], **sizes))
    return [*JOB, "--no-range", "--space", tmp_path / "space.toml", "--work-dir", tmp_path / "work"]


@pytest.fixture
def refusing(monkeypatch):
    """The check refuses whatever there is; how often it did."""
    seen = []

    def refuse(path, *, on_progress):
        seen.append(path)
        raise CertificateError("its upper bound is lower than its multipliers give", file="points.parquet", row=12)

    monkeypatch.setattr(checking, "check_certificate", refuse)
    return seen


def test_what_is_proved_was_checked(arguments, capsys, monkeypatch):
    seen, check = [], checking.check_certificate
    monkeypatch.setattr(checking, "check_certificate", lambda path, **more: seen.append(path) or check(path, **more))
    data = run_json(arguments, capsys)
    assert (data["is_proved"], data["checked"]) == (True, True)
    assert [str(path) for path in seen] == [data["file"]]
    said = " ".join(printed(arguments, capsys).split())
    assert "Independent code checked the certificate; again:" in said
    assert "not checked" not in said
    assert len(seen) == 2, "a certificate at hand is checked too"


def test_what_the_check_refuses_is_not_proved(arguments, refusing, capsys, tmp_path):
    for more in ([], ["--json"], ["--resume"]):
        sentence = refused([*arguments, *more], capsys, "nothing is proved", "row 12", code=1)
        assert str(tmp_path / "work") in sentence
    assert len(refusing) == 3
    assert not [*tmp_path.rglob("certificate.json")], "no search or study takes it for a proof"
    assert [*tmp_path.rglob("refused-certificate.json")]


def test_without_the_check_the_answer_says_so(arguments, refusing, capsys):
    said = " ".join(printed([*arguments, "--no-check"], capsys).split())
    assert "This proof was not checked." in said
    assert "Check the certificate with:" in said
    data = run_json([*arguments, "--no-check"], capsys)
    assert (data["is_proved"], data["checked"]) == (True, False)
    assert json.dumps(data)
    assert refusing == []


def test_every_certificate_of_the_answer_is_checked(arguments, capsys, monkeypatch, tmp_path):
    """Those on the terms of a machine too."""
    seen, check = [], checking.check_certificate
    monkeypatch.setattr(checking, "check_certificate", lambda path, **more: seen.append(path) or check(path, **more))
    text = space_text(min_area_fraction=0.0, num_tc=[16, 32], tc_width=[64], tc_depth=[64], glb_mb=[32])
    (tmp_path / "dies.toml").write_text(text.replace("area_budget_mm2 = 279", "area_budget_mm2 = 800"))
    job = [each for each in arguments if each not in ("--as", "phaze")]
    job[job.index("--space") + 1] = tmp_path / "dies.toml"
    data = run_json([*job, "--equal-to", "tpu-v4"], capsys)
    files = [data["file"], *(each["file"] for each in data["equal_to"]["found"])]
    assert len(files) > 1
    assert [str(path) for path in seen] == files


def test_a_search_believes_what_was_checked(arguments, capsys, caplog):
    """Whether `certify` did it, or `certify --check` afterwards; no longer once a check fails."""
    place = run_json([*arguments, "--no-check"], capsys)["file"]
    search = ["search" if each == "certify" else each for each in arguments]

    def believed():
        """Whether there is a regret, or else the sentence."""
        caplog.clear()
        data = run_json([*search, "--trials", "4"], capsys)
        says = f"not checked: run phaze-opt certify --check '{place}'" in caplog.text
        assert says == (data["regret"] is None), caplog.text
        return not says

    assert not believed()
    assert run_json(["certify", "--check", place], capsys)["valid"]
    assert believed()
    points = Path(place) / "points.parquet"
    whole = points.read_bytes()
    points.write_bytes(whole[:-9])
    assert not run_json(["certify", "--check", place], capsys, code=2)["valid"]
    points.write_bytes(whole)
    assert not believed()
    run_json([*arguments, "--resume"], capsys)
    assert believed()
