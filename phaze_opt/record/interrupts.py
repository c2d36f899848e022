"""Ctrl-C that arrives while a kernel runs, or while it is compiled or loaded."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def kernels_interruptible() -> Iterator[None]:
    """Turn what compiled code makes of Ctrl-C into Ctrl-C again.

    A compiled kernel returns with the interruption pending, which the interpreter reports as a ``SystemError`` that it
    caused; a compilation cut short ends with a ``RuntimeError`` that it raised while handling it, and the import of a
    compiled module with an ``ImportError``.
    """
    try:
        yield
    except (SystemError, RuntimeError, ImportError) as error:
        if _comes_from_interrupt(error):
            raise KeyboardInterrupt from error
        raise


def _comes_from_interrupt(error: BaseException | None) -> bool:
    """Whether Ctrl-C is among what led to an error; what was raised ``from None`` says that nothing did."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return error is not None
