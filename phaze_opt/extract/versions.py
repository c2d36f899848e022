"""The frameworks that extraction asks for, each imported when it is needed, in a window of versions."""

import importlib
import re
from dataclasses import dataclass
from typing import Any

from phaze_opt.errors import InputError


@dataclass(frozen=True, slots=True)
class Framework:
    """A package of an extra.

    Attributes:
        module: its name, for imports and packages alike.
        extra: of this package, that asks for it.
        least: first version that has what is used of it.
        below: first version that may have changed it.
        hint: what else there is to know before it is installed.
    """

    module: str
    extra: str
    least: tuple[int, int]
    below: tuple[int, int]
    hint: str = ""

    def load(self) -> Any:
        """The module.

        Raises:
            InputError: it is not installed, fails to import, or is of another version.
        """
        try:
            module = importlib.import_module(self.module)
        except ModuleNotFoundError as error:
            if error.name != self.module:
                sentence = f"does not import ({error})"
                raise self._fault(sentence) from error
            sentence = "is not installed"
            raise self._fault(sentence) from None
        except (ImportError, OSError, RuntimeError) as error:
            sentence = f"does not import ({str(error)[:200]})"
            raise self._fault(sentence) from error
        version = self.version(module)
        numbers = re.match(r"(\d+)\.(\d+)", version)
        found = (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
        if not self.least <= found < self.below:
            sentence = f"is {version}"
            raise self._fault(sentence)
        return module

    def version(self, module: Any) -> str:
        """Version of the loaded module, without what a builder appended."""
        return str(module.__version__).partition("+")[0]

    def _fault(self, what: str) -> InputError:
        window = f"{_dotted(self.least)} <= version < {_dotted(self.below)}"
        remedy = f"pip install 'phaze-opt[{self.extra}]'{self.hint}"
        message = f"{self.module} {what}, and extraction needs {window}; install it by {remedy}"
        return InputError(message)


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


CPU_WHEEL = (
    " (on Linux that is a CUDA build of gigabytes; the CPU build, which is enough, comes first from the index that "
    "pytorch.org names for 'CPU')"
)
TORCH = Framework("torch", "extract", least=(2, 6), below=(3, 0), hint=CPU_WHEEL)
TRANSFORMERS = Framework("transformers", "extract", least=(5, 0), below=(6, 0))
ONNX = Framework("onnx", "onnx", least=(1, 16), below=(2, 0))
