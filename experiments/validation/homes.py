"""Where constants, ranges and records of families are: of the package here, of an installed pack beside the pack."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from phaze_opt.validation import predict
from phaze_opt.validation.family import Family
from phaze_opt.validation.packs import load_packs

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Home:
    """Families of one distribution.

    Attributes:
        families: those wanted, in the order of fitting.
        records: folder of the records that scripts write.
        files: folder of ``fitted_constants.json`` and ``spreads.json``.
        page: document with the table of figures.
    """

    families: tuple[Family, ...]
    records: Path
    files: Path
    page: Path


def homes(names: Sequence[str] = ()) -> tuple[Home, ...]:
    """The package and the installed packs, each with its families, all or those named; those without any left away.

    Raises:
        InputError: an unknown name.
    """
    wanted = {family.name for family in predict.load_families(names)}
    own = (predict.FAMILIES, HERE, Path(str(resources.files("phaze_opt.hardware"))), HERE.parents[1] / "docs")
    places = [(*own, "validation.md")]
    for pack in load_packs():
        root = pack.folder.parent
        places.append((pack.families, root / "experiments", pack.folder, root, "kernels.md"))
    found = []
    for families, records, files, pages, page in places:
        chosen = tuple(family for family in families if family.name in wanted)
        if chosen:
            found.append(Home(chosen, records, files, pages / page))
    return tuple(found)
