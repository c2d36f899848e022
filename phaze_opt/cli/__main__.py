"""``python -m phaze_opt.cli``."""

from phaze_opt.cli.entry import main

main()
