"""Names under which rooms above import what reads TOML."""

from phaze_opt.record.document import Document as TomlDocument
from phaze_opt.record.document import parse_toml, read_toml
from phaze_opt.record.input_files import is_number, shorten

__all__ = ["TomlDocument", "is_number", "parse_toml", "read_toml", "shorten"]
