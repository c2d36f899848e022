"""``python -m phaze_opt``."""

from phaze_opt.cli.entry import main

main()
