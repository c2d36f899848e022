"""The script that fits the package's constants: two runs write the same bytes, and other families' groups stay."""

import importlib.util
from pathlib import Path

import pytest
from kits.toy_family import TOY

from phaze_opt.hardware.fitted import read_fitted_file, read_own_file
from phaze_opt.validation import predict

SCRIPT = Path(__file__).parents[2] / "experiments" / "validation" / "calibrate.py"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.setattr(predict, "FAMILIES", (TOY,))
    return load_script()


def load_script():
    spec = importlib.util.spec_from_file_location("calibrate_script", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_two_runs_write_the_same_bytes(script, tmp_path, capsys):
    for name in ("a.json", "b.json"):
        script.main(["--out", str(tmp_path / name)])
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert set(read_fitted_file(tmp_path / "a.json").groups) == {"toy/A100-SXM-80GB", "toy/MI210"}
    assert "op_llmcompass: 90 of 90 rows" in capsys.readouterr().out


def test_one_family_leaves_the_groups_of_others(script, tmp_path):
    script.main(["--only", "toy", "--fast", "--out", str(tmp_path / "c.json")])
    groups = read_fitted_file(tmp_path / "c.json").groups
    known = read_own_file().groups
    assert {name: groups[name] for name in known} == known
    assert set(groups) - set(known) == {"toy/A100-SXM-80GB", "toy/MI210"}


@pytest.mark.slow
def test_the_package_s_constants_are_what_the_script_fits(tmp_path):
    """To the last of the six digits written, on every CPU."""
    script = load_script()
    script.main(["--fast", "--out", str(tmp_path / "all.json")])
    fitted, own = read_fitted_file(tmp_path / "all.json").groups, read_own_file().groups
    assert set(fitted) == set(own)
    for name, group in own.items():
        assert {key: item.model_dump(exclude={"value"}) for key, item in fitted[name].constants.items()} == {
            key: item.model_dump(exclude={"value"}) for key, item in group.constants.items()
        }
        for key, item in group.constants.items():
            assert fitted[name].constants[key].value == pytest.approx(item.value, rel=1.1e-5), f"{name}.{key}"


def test_the_package_s_constants_are_within_bounds_and_of_known_rows():
    from phaze_opt.validation.dataset import read_datasets

    ids = {dataset.name: {row.id for row in dataset.rows} for dataset in read_datasets(None)[0]}
    for name, group in read_own_file().groups.items():
        for key, constant in group.constants.items():
            assert constant.low <= constant.value <= constant.high, f"{name}.{key}"
            assert constant.meaning, f"{name}.{key}"
        for dataset, used in group.datasets.items():
            assert set(used) <= ids[dataset], name
