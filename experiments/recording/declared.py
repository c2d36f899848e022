"""Every record of experiments/, declared: the files it is, the commands that make it, and about how long they take."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from phaze_opt.errors import InputError
from phaze_opt.record.suggestions import suggest

ALL_MODELS = "{models}"
WORK = "{work}"


@dataclass(frozen=True, slots=True)
class Record:
    """One record.

    Attributes:
        name: group and file, such as ``certified/zoo``.
        files: paths from the root of the repository.
        commands: run there one after the other; ``{work}`` is a directory of the record's own, ``{models}`` what is
            asked for, and ``> FILE`` keeps what is printed. One that was interrupted is given again.
        minutes: about, on two cores, as recorded or summed over what the record holds.
        models: those that may be written anew alone; the others keep what they have.
        inputs: files and directories that the commands read, beside the package and the scripts of the group.
        finish: a command run in the repository itself once the files are in place.
        is_about_speed: all its figures follow the machine: how fast, or how far within some seconds.
    """

    name: str
    files: tuple[str, ...]
    commands: tuple[str, ...]
    minutes: float
    models: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    finish: str = ""
    is_about_speed: bool = False

    @property
    def group(self) -> str:
        """The directory of experiments/ it is in."""
        return self.name.split("/")[0]


@dataclass(frozen=True, slots=True)
class Piece:
    """What is made at a time: a whole record, or what it holds of one model.

    Attributes:
        record: of which.
        model: one of the record's; empty for the whole record.
    """

    record: Record
    model: str = ""

    @property
    def name(self) -> str:
        """In tables and sentences."""
        return f"{self.record.name}, {self.model}" if self.model else self.record.name

    def commands(self, work: str) -> tuple[str, ...]:
        """The commands with the places filled in."""
        models = self.model or " ".join(self.record.models)
        return tuple(text.replace(ALL_MODELS, models).replace(WORK, work) for text in self.record.commands)


def _script(name: str, arguments: str, minutes: float, *, script: str, suffixes: str = "json") -> Record:
    """A record that one script of its group writes beside itself."""
    files = tuple(f"experiments/{name}.{suffix}" for suffix in suffixes.split())
    command = f"python experiments/{name.split('/', maxsplit=1)[0]}/{script}.py {arguments}".strip()
    return Record(name, files, (command,), minutes)


def _study(name: str, minutes: float) -> Record:
    """A study of studies/ and its judgement."""
    return Record(
        f"studies/{name}",
        (f"experiments/studies/{name}.json",),
        (
            f"phaze-opt study run studies/{name}.toml --jobs 2 --resume --no-tracking --work-dir {WORK}",
            f"python experiments/studies/record.py {WORK} {name}",
        ),
        minutes,
        inputs=(f"studies/{name}.toml",),
    )


_ZOO = (
    "bert-large gpt2-xl gpt3-175b llama-2-7b llama-3-70b llama-3-8b megatron-bert megatron-gpt2-54 megatron-gpt2-72 "
    "mixtral-8x7b opt-1.3b opt-350m tiny"
)
_FOUR = "bert-large gpt2-xl llama-2-7b gpt3-175b"
_CERTIFIED = (
    _script("certified/goals", "", 6, script="goals"),
    Record(
        "certified/zoo",
        ("experiments/certified/zoo.json",),
        tuple(
            f"python experiments/certified/zoo.py {part} --work-dir {WORK} --models {ALL_MODELS}"
            for part in ("certify", "check", "study", "compare")
        ),
        70,
        models=tuple(_ZOO.split()),
        inputs=("studies/zoo.toml",),
    ),
    replace(_script("certified/dense", f"--models {ALL_MODELS}", 5, script="dense"), models=tuple(_FOUR.split())),
    _script("certified/axes", "", 5, script="axes"),
    _script("certified/fronts", "", 25, script="fronts"),
    _script("certified/growth", "points layers operators devices plot", 10, script="growth", suffixes="json svg"),
)
_ENCODING = (
    _script("encoding/result", "--seeds 20", 7, script="measure_encoding"),
    _script("encoding/result_real", "--seeds 10", 10, script="measure_real"),
)
_TUNED = """'spotlight:{"refit_every":1,"candidates":3000}'"""
_MEASURE = f"python experiments/samplers/measure.py --cache {WORK} --cases"
_SUMMARISE = "python experiments/samplers/summarise.py --optima experiments/samplers/optima.json"
_OTHERS = '"spotlight;spotlight-vanilla;spotlight-fixed;spotlight-ga;tpe;random"'
_SAMPLERS = Record(
    "samplers/result",
    (
        "experiments/samplers/optima.json",
        "experiments/samplers/runs.jsonl",
        "experiments/samplers/result.json",
        "experiments/spotlight/result.json",
    ),
    (
        f"python experiments/samplers/optima.py --work-dir {WORK}",
        f"{_MEASURE} {_TUNED}",
        f'{_MEASURE} "random;tpe;spotlight" --models gpt3-175b',
        f'{_MEASURE} "random;tpe;spotlight" --models bert-large,gpt2-xl,opt-1.3b,llama-2-7b --seeds 3',
        f'{_MEASURE} "spotlight-vanilla;spotlight-fixed;spotlight-ga;tpe exponents;tpe lifted" '
        "--models gpt2-xl,gpt3-175b --seeds 3",
        f"{_SUMMARISE} --output experiments/samplers/result.json",
        f"{_SUMMARISE} --output experiments/spotlight/result.json --only {_TUNED[:-1]};{_OTHERS[1:-1]}'",
    ),
    40,
)
_SCHEDULE = (
    _script("schedule/bench", "--time-limit 30 --output experiments/schedule/bench.json", 15, script="bench"),
    _script("schedule/root_bounds", "", 1, script="root_bounds"),
    replace(
        _script("schedule/wide", "--cpu --output experiments/schedule/wide.json", 7, script="wide"), is_about_speed=True
    ),
)
_STUDIES = (
    replace(
        _study("flexibility", 2),
        inputs=("studies/flexibility.toml", "studies/spaces", "studies/models", "tests/traced_models"),
    ),
    _study("quickstart", 1),
    _study("strategies-bert", 8),
    _study("wham-vs-spotlight", 9),
    _study("ablation-pruner", 15),
    _study("ablation-encoding", 4),
    _study("multi-objective", 5),
    _study("per-model-vs-common", 13),
    _study("sensitivity", 15),
    *(
        replace(_study(name, minutes), inputs=(f"studies/{name}.toml", "studies/spaces"))
        for name, minutes in (("pipelining", 2), ("sparsity", 4), ("fusion", 2))
    ),
    *(
        replace(_study(name, minutes), inputs=(f"studies/{name}.toml", "studies/models", "tests/traced_models"))
        for name, minutes in (("wham-eleven", 20), ("wham-common", 10))
    ),
    replace(
        _script("studies/eleven-machines", "", 2, script="eleven_machines"),
        inputs=("studies/wham-common.toml", "studies/models", "tests/traced_models"),
    ),
)
_VALIDATION = (
    replace(
        _script("validation/designs", f"--models {ALL_MODELS}", 11, script="designs", suffixes="json md"),
        models=("bert-large", "gpt3-175b", "gpt2-xl", "llama-2-7b"),
    ),
    replace(
        _script("validation/generalisation", "", 7, script="generalise"),
        finish="python experiments/validation/figures.py",
    ),
    _script("validation/die_powers", "", 0.1, script="die_powers"),
    _script("validation/dies", "", 0.3, script="dies"),
    _script("validation/half_splits", "", 30, script="half_splits"),
    _script("validation/sources", "", 3, script="sources"),
    _script("validation/spreads", "", 30, script="spreads"),
    _script("validation/nvdla", "", 0.1, script="nvdla"),
    _script("validation/published_plans", "", 0.5, script="published_plans", suffixes="json md"),
    _script("validation/shapes", "", 5, script="shapes", suffixes="json md"),
    _script("validation/silicon", "", 0.2, script="silicon"),
)
_CONFIGS = "tests/workload/configs"
_WHAM_MODELS = (
    *["bert-large", "gpt2-xl", "llama-2-7b", "megatron-gpt2-54", "opt-1.3b", "gpt3-175b", "llama-3-8b", "mixtral-8x7b"],
    f"{_CONFIGS}/qwen2-7b.json",
)
_WHAM = (
    Record(
        "wham/result",
        ("experiments/wham/result.json",),
        (
            *(
                f"python experiments/wham/truth.py {model} {network} > "
                f"{WORK}/{model.removeprefix(f'{_CONFIGS}/').removesuffix('.json')}-{network}.json"
                for model in _WHAM_MODELS
                for network in ("two-level", "phaze")
            ),
            f"python experiments/wham/measure.py {WORK} > experiments/wham/result.json",
        ),
        45,
        inputs=(_CONFIGS,),
    ),
    Record(
        "wham/unseen",
        ("experiments/wham/unseen.json",),
        ("python experiments/wham/unseen.py > experiments/wham/unseen.json",),
        25,
        inputs=(_CONFIGS,),
    ),
    Record(
        "wham/heterogeneous",
        ("experiments/wham/heterogeneous.json",),
        ("python experiments/wham/heterogeneous.py > experiments/wham/heterogeneous.json",),
        2,
    ),
)
_RESIDENCY = tuple(
    replace(
        _script(f"residency/{name}", "--write", 1, script=name), inputs=("experiments/plans/records.py", "tests/kits")
    )
    for name in ("ahead", "cmem", "effect", "gap")
)
RECORDS = (
    *_CERTIFIED,
    replace(
        _script("claims/claims", "", 30, script="claims"),
        inputs=("experiments/certified/zoo.json", "experiments/studies/wham-vs-spotlight.json"),
        finish="python experiments/claims/tables.py",
    ),
    replace(
        _script("claims/worth", "", 5, script="worth"),
        inputs=("studies/models",),
        finish="python experiments/claims/tables.py",
    ),
    replace(
        _script("claims/papers", "", 2, script="papers"),
        inputs=(
            "experiments/studies/strategies-bert.json",
            "experiments/samplers/optima.json",
            "experiments/network",
            "studies/models",
            "tests/traced_models",
        ),
    ),
    *_ENCODING,
    _script("estimator/bench", "", 0.5, script="bench"),
    _script("evaluate/bench", "", 2, script="bench"),
    _script("layer_fusion/compare", "", 2, script="compare"),
    _script("layer_fusion/order", "", 5, script="order"),
    *(
        replace(_script(f"flexibility/{name}", "", 2, script=name), inputs=("studies/models", "tests/traced_models"))
        for name in ("future_proofing", "loop_nests", "bred_mappings")
    ),
    replace(_script("evaluate/warm", "", 2, script="warm"), inputs=("tests/traced_models", "studies/models")),
    _script("network/curve_forms", "--write", 1, script="curve_forms"),
    _script("network/paper_gains", "--write", 1, script="paper_gains"),
    _script("placement/results", "", 1, script="bench"),
    replace(
        _script("plans/bench_columns", "", 2, script="bench_columns"),
        inputs=("tests/kits", "tests/plan/test_llama3_405b.py"),
        is_about_speed=True,
    ),
    _script("plans/check", "--write", 2, script="check"),
    _script("plans/cuts", "--write", 2, script="cuts"),
    _script("plans/designs", "--write", 18, script="designs"),
    _script("plans/heterogeneous", "--write", 4, script="heterogeneous"),
    _script("plans/lower", "--write", 2, script="lower"),
    _script("silicon/optima", "--write", 25, script="optima"),
    _script("silicon/robust", "--write", 25, script="robust"),
    Record(
        "pruner/results",
        ("experiments/pruner/results.json",),
        (
            f"python experiments/pruner/bench.py sweep --models {_FOUR}",
            f"python experiments/pruner/bench.py tightness --count 80 --models {_FOUR} mixtral-8x7b",
            "python experiments/pruner/bench.py slice --models bert-large",
        ),
        12,
    ),
    *_RESIDENCY,
    _SAMPLERS,
    Record(
        "scale/result",
        ("experiments/scale/result.json",),
        ("python experiments/scale/measure.py --trials 64 > experiments/scale/result.json",),
        5,
        is_about_speed=True,
    ),
    *_SCHEDULE,
    *_STUDIES,
    replace(_script("study/overhead", "--tracking", 4, script="bench_overhead"), is_about_speed=True),
    replace(_script("tracking/bench", "--evaluations 30 --seeds 2", 3, script="bench"), is_about_speed=True),
    *_VALIDATION,
    *_WHAM,
)


def choose(names: Sequence[str], records: Sequence[Record] = RECORDS) -> list[Piece]:
    """The pieces that names ask for, in the order of the records; everything where there are none.

    Args:
        names: of records (``certified/zoo``, or ``zoo`` where one record alone is called so), of groups
            (``certified``), or of models, which stand for every record that can be written anew for one model;
            ``certified/zoo:tiny`` is one model's part of one record.
        records: all that are known.

    Raises:
        InputError: nothing is called so.
    """
    known = {piece: names_of(piece, records) for record in records for piece in _pieces(record)}
    wanted = {piece for piece, own in known.items() if own & set(names)}
    every = set().union(*known.values())
    for name in sorted(set(names) - every):
        message = f"'{name}' is no record, no group of records and no model of one; {suggest(name, every)}"
        raise InputError(message, key="ONLY")
    if not names:
        return [Piece(record) for record in records]
    return [piece for piece in known if piece in wanted and (not piece.model or Piece(piece.record) not in wanted)]


def names_of(piece: Piece, records: Sequence[Record]) -> set[str]:
    """All names that ask for a piece."""
    record = piece.record
    if piece.model:
        return {piece.model, f"{record.name}:{piece.model}"}
    ending = record.name.split("/")[1]
    is_alone = sum(each.name.endswith(f"/{ending}") for each in records) == 1
    return {record.name, record.group, *([ending] if is_alone else [])}


def _pieces(record: Record) -> list[Piece]:
    """The whole record, and its models' parts."""
    return [Piece(record), *(Piece(record, model) for model in record.models)]
