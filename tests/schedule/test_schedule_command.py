"""The command: one line of JSON, a table for people, and one sentence for every kind of bad input."""

import copy
import json

import pytest

from phaze_opt.cli.main import main

GOOD = {
    "name": "small",
    "num_tc": 2,
    "num_vc": 1,
    "nodes": [
        {"id": 3, "core_type": "TC", "latency": 4.0, "intra_op_latency": 3.0, "energy": 1.0},
        {"id": 5, "core_type": "VC", "latency": 2.0, "intra_op_latency": 2.5},
        {"id": "out", "core_type": "Nop", "latency": 0.0, "intra_op_latency": 0.0},
    ],
    "edges": [[3, 5], [5, "out"]],
}


def run(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["schedule", *map(str, arguments)])
    captured = capsys.readouterr()
    return stop.value.code, captured.out, captured.err


@pytest.fixture
def write(tmp_path):
    def writer(content, name="instance.json"):
        path = tmp_path / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return writer


def changed(**changes):
    content = copy.deepcopy(GOOD)
    content.update(changes)
    return content


def changed_node(index=0, **changes):
    content = copy.deepcopy(GOOD)
    content["nodes"][index].update(changes)
    return content


def test_json_is_one_line_with_the_promised_keys(write, capsys):
    code, out, err = run([write(GOOD), "--json"], capsys)
    assert code == 0, err
    assert len(out.splitlines()) == 1
    result = json.loads(out)
    assert result["makespan"] == result["lower_bound"] == 5.0
    assert (result["gap"], result["status"], result["name"]) == (0.0, "optimal", "small")
    assert result["start"] == {"3": 0.0, "5": 3.0, "out": 5.0}
    assert result["spread"] == [3]


def test_people_get_a_chart_and_a_table(write, capsys):
    code, out, _ = run([write(changed(name="odd [bold] name"))], capsys)
    assert code == 0
    assert "odd [bold] name" in out
    assert "TC 1" in out
    assert "optimal" in out
    assert "spread" in out


def test_public_instance_of_a_list_by_name(write, capsys, public_instances):
    path = write(list(public_instances.values()))
    code, out, err = run([path, "--json", "--name", "rand_n12_3"], capsys)
    assert code == 0, err
    assert json.loads(out)["makespan"] == pytest.approx(107.402)
    code, _, err = run([path], capsys)
    assert code == 2
    assert "--name" in err
    code, _, err = run([path, "--name", "rand_n12_4"], capsys)
    assert code == 2
    assert "rand_n12_3" in err


def test_type_rule_is_an_option(write, capsys):
    content = changed(
        num_tc=4,
        num_vc=4,
        nodes=[
            {"id": 0, "core_type": "TC", "latency": 10, "intra_op_latency": 4},
            {"id": 1, "core_type": "VC", "latency": 10, "intra_op_latency": 4},
        ],
        edges=[],
    )
    path = write(content)
    makespans = [
        json.loads(run([path, "--json", "--exclusivity", rule], capsys)[1])["makespan"] for rule in ("chip", "type")
    ]
    assert makespans == [8.0, 4.0]


def test_figure_is_written_and_words_go_to_standard_error(write, tmp_path, capsys):
    target = tmp_path / "gantt.html"
    code, out, err = run([write(GOOD), "--json", "--figure", target], capsys)
    assert code == 0
    assert len(out.splitlines()) == 1
    assert "gantt.html" in err
    page = target.read_text()
    assert "<svg" in page
    assert "lower bound" in page
