"""Files of code that leave a mark when they are run: records name one, others lie in the working folder."""

from dataclasses import dataclass
from pathlib import Path

PLACES = {"estimator", "strategy", "pruner", "layer_fusion", "tracker"}
"""Keys under which records name plug-ins."""
CODE = """
from pathlib import Path

Path({mark!r}).write_text("ran")


class Mine:
    name = "mine"
"""


MODULES = ("struct", "signal", "numpy", "pickle", "uvicorn", "mlflow", "huey", "gunicorn.conf", "distributed")
"""What Python, this package, MLflow and Dask import, or look for in the working folder."""


@dataclass(frozen=True)
class Planted:
    """A file, what names it, and what it leaves when it is run."""

    file: Path
    mark: Path

    @property
    def name(self) -> str:
        return f"{self.file}:Mine"

    def named_in(self, value: object) -> object:
        """A record that names the file wherever it names a plug-in."""
        if isinstance(value, dict):
            return {key: self.name if key in PLACES else self.named_in(each) for key, each in value.items()}
        return [self.named_in(each) for each in value] if isinstance(value, list) else value

    @property
    def has_run(self) -> bool:
        return self.mark.exists()


def plant(folder: Path) -> Planted:
    """Write the file into a folder."""
    planted = Planted(folder / "planted.py", folder / "RAN")
    planted.file.write_text(CODE.format(mark=str(planted.mark)))
    return planted


def plant_modules(folder: Path) -> Planted:
    """Write files into a folder that bear names of modules; run, each ends its process too."""
    planted = plant(folder)
    for name in MODULES:
        (folder / f"{name}.py").write_text(f"open({str(planted.mark)!r}, 'a').write({name!r}); raise SystemExit(99)")
    return planted
