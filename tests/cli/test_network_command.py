"""phaze-opt network: list, show, optimise, and its bad input."""

import pytest
from command_runs import printed, refused, run, run_json

from phaze_opt.hardware.networks import list_networks, load_network

OPTIMISE = ["network", "optimise", "--model", "bert-large", "--devices", "64"]


def test_list(capsys):
    found = run_json(["network", "list"], capsys)
    assert [entry["name"] for entry in found] == list(list_networks())
    assert "dgx-a100" in printed(["network", "list"], capsys)


def test_show(capsys):
    found = run_json(["network", "show", "dgx-a100", "--devices", "32"], capsys)
    assert [level["size"] for level in found["levels"]] == [8, 4]
    assert found["levels"][0]["curve"]["bandwidth_bytes_per_s"] > 2e11
    largest = found["all_reduce"][-1]
    assert largest["seconds"]["32 devices"] > largest["seconds"]["8 devices"] > 0
    assert set(largest["seconds"]) == {"8 devices", "32 devices"}, "measured levels are not crossed in chunks"
    assert "themis" in printed(["network", "show", "tpu-v4-torus"], capsys)


def test_where_whole_chunks_make_the_allocation_slower_the_equal_split_is_the_answer(capsys):
    degrees = ["--model", "gpt3-175b", "--devices", "1024", "--tensor-parallel", "16", "--pipeline", "8"]
    found = run_json(["network", "optimise", *degrees, "--chunking", "themis"], capsys)
    # The allocation moves the bytes in 634 ms but takes 686; the equal split takes 672.
    assert found["best"]["seconds"] == found["equal"]["seconds"] < found["given"]["seconds"]
    assert found["transfer_seconds"] < found["best"]["seconds"]


@pytest.mark.parametrize("chunking", ["none", "fixed", "themis"])
def test_optimise_is_never_worse_than_an_equal_split(chunking, capsys):
    degrees = ["--tensor-parallel", "16", "--pipeline", "2", "--chunking", chunking]
    found = run_json([*OPTIMISE, "--network", "two-level", *degrees], capsys)
    assert found["best"]["seconds"] <= found["equal"]["seconds"]
    assert found["best"]["seconds"] <= found["given"]["seconds"]
    assert found["transfer_bound_seconds"] <= found["transfer_seconds"] * (1 + 1e-9)
    totals = [sum(level["bandwidth_bytes_per_s"] for level in found[case]["levels"]) for case in ("given", "best")]
    assert totals[0] == pytest.approx(500e9)
    assert totals[1] == pytest.approx(500e9)
    assert sum(c["count"] * c["best_seconds"] for c in found["collectives"]) == pytest.approx(found["best"]["seconds"])


def test_the_file_it_writes_is_a_network(tmp_path, capsys):
    path = tmp_path / "deep" / "network.toml"
    arguments = [*OPTIMISE, "--network", "dgx-a100", "--total-gb-per-s", "400", "--out", str(path)]
    assert "--network" in printed([*arguments, "--tensor-parallel", "4"], capsys)
    network = load_network(str(path), num_devices=64)
    assert network.name == "dgx-a100-allocated"
    assert sum(level.bandwidth_bytes_per_s for level in network.dimensions) == pytest.approx(400e9)
    found = run_json(["network", "show", str(path)], capsys)
    assert found["name"] == network.name


def test_the_file_of_a_chunked_design_is_crossed_in_chunks_everywhere(tmp_path, capsys):
    path = tmp_path / "network.toml"
    degrees = ["--tensor-parallel", "16", "--chunking", "themis", "--out", str(path)]
    designed = run_json([*OPTIMISE, "--network", "two-level", *degrees], capsys)
    again = run_json([*OPTIMISE, "--network", str(path), "--tensor-parallel", "16"], capsys)
    assert again["chunking"] == "themis"
    assert again["given"]["seconds"] == pytest.approx(designed["best"]["seconds"], rel=1e-6)
    evaluate = [
        "evaluate",
        "--model",
        "bert-large",
        "--arch",
        "phaze-tpu-v4",
        "--devices",
        "64",
        "--global-batch",
        "512",
    ]
    evaluate += ["--tensor-parallel", "16", "--micro-batch", "8", "--no-range"]
    plain = tmp_path / "plain.toml"
    plain.write_text(path.read_text().replace('chunking = "themis"\n', ""))
    rates = [
        run_json([*evaluate, "--network", str(file)], capsys)["throughput_samples_per_s"] for file in (path, plain)
    ]
    assert rates[0] >= rates[1]


def test_costs_move_bandwidth_to_cheaper_levels(capsys):
    arguments = [*OPTIMISE, "--network", "two-level", "--tensor-parallel", "16"]
    even = run_json(arguments, capsys)["best"]["levels"]
    dear = run_json([*arguments, "--costs", "1,20"], capsys)["best"]["levels"]
    shares = [levels[1]["bandwidth_bytes_per_s"] / levels[0]["bandwidth_bytes_per_s"] for levels in (even, dear)]
    # The square-root rule: a price of 20 divides the ratio by sqrt(20).
    assert shares[0] / shares[1] == pytest.approx(20**0.5, rel=1e-6)
    spent = dear[0]["bandwidth_bytes_per_s"] + 20 * dear[1]["bandwidth_bytes_per_s"]
    assert spent == pytest.approx(500e9 / 2 * 21)


@pytest.mark.parametrize("command", ["network", "study"])
def test_a_group_without_a_command_prints_its_help_alone(command, capsys):
    code, out, err = run([command], capsys)
    assert (code, err) == (2, "")
    assert f"Usage: phaze-opt {command}" in out


@pytest.mark.parametrize(
    ("option", "value"), [("--total-gb-per-s", "1e300"), ("--total-gb-per-s", "1e-300"), ("--costs", "1e300,1")]
)
def test_numbers_without_measure_are_refused_before_they_overflow(option, value, capsys):
    err = refused(["network", "optimise", "--model", "tiny", "--devices", "16", option, value], capsys)
    assert err.startswith(f"phaze-opt: {option}: ")


def test_a_large_model_needs_degrees_a_small_one_none(capsys):
    """The refusal is for what is given no degree: with some, and where a whole model fits, the split is found."""
    large = ["network", "optimise", "--model", "llama-3-70b", "--devices", "512"]
    assert run_json([*large, "--tensor-parallel", "8", "--pipeline", "4"], capsys)["best"]["seconds"] > 0
    assert run_json(OPTIMISE, capsys)["plan"]["data"] == 64
