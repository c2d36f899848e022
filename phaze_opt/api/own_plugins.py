"""Strategies and pruners of one's own, known to this process: registered, or a sampler of Optuna."""

from phaze_opt.errors import InputError
from phaze_opt.plugins import PluginGroup, register_plugin
from phaze_opt.search.pruner import Pruner
from phaze_opt.search.strategy import Strategy


def register(plugin: object, *, name: str = "") -> str:
    """Make a strategy or a pruner known to this process by name, as if a package had brought it.

    Registered again, a name stands for the later one. Studies search in processes of their own, which do not know it:
    there name it as ``file.py:Class``.

    Args:
        plugin: a class that is made without arguments, or an object.
        name: the name; its own unless given.

    Returns:
        The name.

    Raises:
        InputError: it is neither strategy nor pruner, or has no name.
        PluginError: another plug-in has the name.
    """
    made = plugin() if isinstance(plugin, type) else plugin
    group = next((group for kind, group in _KINDS if isinstance(made, kind)), None)
    if group is None:
        message = (
            f"a {type(made).__name__} is neither strategy (name, capabilities, start) nor pruner (name, is_safe, start)"
        )
        raise InputError(message, key="plugin")
    chosen = name or str(getattr(made, "name", ""))
    if not chosen.strip():
        message = "is empty; give a name"
        raise InputError(message, key="name")
    register_plugin(group, chosen, plugin)
    return chosen


_KINDS = ((Strategy, PluginGroup.STRATEGIES), (Pruner, PluginGroup.PRUNERS))


def plugin_name(given: object) -> object:
    """The name of a strategy or pruner that was given as a class or object, which is registered; names stay."""
    return given if isinstance(given, str) else register(given)
