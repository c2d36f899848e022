"""Search strategies and the ask-and-tell loop."""

from phaze_opt.callable_room import make_callable

make_callable(__name__, "phaze_opt.api.designs:search")
