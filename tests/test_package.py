"""The package as a whole: cheap to import, complete at the top, and as its documents say."""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from command_runs import printed

import phaze_opt
from phaze_opt.certify.problem import CertifyProblem
from phaze_opt.cli.main import COMMANDS
from phaze_opt.hardware.constants import load_constants
from phaze_opt.objective.scenario import PlanSpace, build_space, make_scenario
from phaze_opt.objective.scenario_options import SpaceOptions

ROOT = Path(__file__).parents[1]
GROUPS = ("study", "network", "graph")
"""Commands that have commands."""
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
GUIDES = "\n".join(path.read_text(encoding="utf-8") for path in DOCUMENTS if path.parent.name != "decisions")
"""What a user reads: README, CONTRIBUTING and the pages of docs/."""
NO_NOTES = ("README.md", "history.md")
"""Of docs/decisions: the index, and what is left of notes that no longer hold."""


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", GUIDES, flags=re.DOTALL)


@pytest.mark.parametrize("name", phaze_opt.__all__)
def test_every_name_loads(name):
    assert getattr(phaze_opt, name) is not None


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="nonsense"):
        _ = phaze_opt.nonsense


def test_importing_the_package_loads_nothing_heavy():
    code = (
        "import sys\nimport phaze_opt\n"
        "heavy = {'mlflow', 'torch', 'optuna', 'pyomo', 'numpy', 'numba', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_documents_name_real_commands_and_options(capsys):
    lines = re.findall(r"^(?:\$ |    )phaze-opt (.*?)\\?$", GUIDES, flags=re.MULTILINE)
    options: dict[tuple[str, ...], set[str]] = {}
    for words in (shlex.split(line, comments=True) for line in lines):
        assert words[0] in COMMANDS, words
        command = tuple(words[: 2 if words[0] in GROUPS else 1])
        options.setdefault(command, set()).update(word for word in words if word.startswith("--"))
    assert len(options) > 10
    for command, named in options.items():
        shown = printed([*command, "--help"], capsys)
        assert {option for option in named if option not in shown} == set(), command


def test_the_python_of_the_documents_prints_what_it_says(tmp_path, monkeypatch, capsys):
    """What it says stands in backticks in the sentence after each program."""
    monkeypatch.chdir(tmp_path)
    said = [
        re.findall(r"`([^`]+)`", sentence) for sentence in re.findall(r"^It prints .*$", GUIDES, flags=re.MULTILINE)
    ]
    for program, lines in zip(blocks("python"), said, strict=True):
        exec(program, {"__name__": "__main__"})
        assert lines
        assert set(lines) <= set(capsys.readouterr().out.splitlines())


def test_a_wheel_carries_every_file_of_the_package():
    """Sources and licences of the measurements too: whoever installs the data must be able to read where it is from."""
    listed = subprocess.run(["git", "ls-files", "phaze_opt"], cwd=ROOT, capture_output=True, text=True, check=False)
    package = ROOT / "phaze_opt"
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    carried = {path for pattern in settings["package-data"]["phaze_opt"] for path in package.glob(pattern)}
    files = {ROOT / name for name in listed.stdout.split() if (ROOT / name).is_file()}
    assert {path for path in files if path.suffix != ".py"} <= carried


def test_documents_name_files_that_exist():
    """Scripts and modules by path or, where the text has said the room, by name; links between documents too."""
    documents = [*DOCUMENTS, *(ROOT / "experiments").rglob("README.md"), *(ROOT / "lab").glob("*.md")]
    known = {path.name for room in ("phaze_opt", "tests", "experiments", "lab") for path in (ROOT / room).rglob("*.py")}
    lab = ROOT / "lab"
    rooms = [ROOT, lab, lab / "phaze_opt_lab", ROOT / "phaze_opt", *(ROOT / "phaze_opt").iterdir()]
    for document in documents:
        text = document.read_text(encoding="utf-8")
        for name in re.findall(r"(?:`|python )([\w/]+\.py)\b", text):
            places = [folder / name for folder in rooms]
            assert name in known or any(place.is_file() for place in places), (document.name, name)
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
            assert (document.parent / target).exists(), (document.name, target)


def test_the_index_of_decisions_lists_every_note_once():
    """A note in a file of its own is a row; links to sections of a file name sections that are there."""
    folder = ROOT / "docs" / "decisions"
    text = (folder / "README.md").read_text(encoding="utf-8")
    linked = [name for name in re.findall(r"\]\(([^)#/]+\.md)\)", text) if name != "history.md"]
    assert sorted(linked) == sorted(path.name for path in folder.glob("*.md") if path.name not in NO_NOTES)
    for name, section in re.findall(r"\]\(([^)#/]+\.md)#([^)]+)\)", text):
        headings = re.findall(r"^#+ (.+)$", (folder / name).read_text(encoding="utf-8"), flags=re.MULTILINE)
        assert section in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}, section


def test_no_committed_file_names_an_address_or_a_machine():
    """Fixed point of the project: no download address and no path of a machine in any committed file."""
    words = ("python" + "hosted", "/" + "root/", "/" + "home/", "/" + "Users/")
    forbidden = re.compile("|".join(words))
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    for name in listed.stdout.split():
        path = ROOT / name
        if path.suffix in {".py", ".md", ".toml", ".txt", ".json", ".csv", ".cfg", ".j2", ""} and path.is_file():
            assert not forbidden.search(path.read_text(encoding="utf-8", errors="ignore")), name


def test_the_readme_is_a_door_and_not_the_house():
    """One page: what it is, for whom, how to begin, where to read on."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_the_certificate_that_the_documents_name_is_that_of_the_command_above_it():
    """What a problem is called does not change unless the problem does."""
    named = re.findall(r"phaze-opt-certificates/bert-large-([0-9a-f]{16})", GUIDES)
    assert len(named) >= 2
    scenario = make_scenario("bert-large", devices=1024, global_batch=4096)
    space = build_space(SpaceOptions(), PlanSpace.FULL, silicon=scenario.silicon)
    problem = CertifyProblem(scenario, space, load_constants())
    assert {problem.digest[:16]} == set(named)
