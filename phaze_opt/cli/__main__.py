"""``python -m phaze_opt.cli``."""

from phaze_opt.cli.main import main

main()
