"""Controlled studies: many searches under one plan, judged together.

What others use lies here: `config` and `plan` (what is compared), `run` and `events` (doing it), `load` and
`result` (reading it back), `truth` (true optima), `summary`, `scores` and `compare` (judging). The rest, by room:
`files` (TOML to a plan), `disk` (the study's directory), `stores` (shared evaluations), `execution` (processes),
`judging` (regret, tests, what claims stand on) and `generality` (per-model against common designs).
"""

from phaze_opt.callable_room import make_callable

make_callable(__name__, "phaze_opt.api.judged:study")
