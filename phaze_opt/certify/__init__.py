"""Proof of the optimum of a whole space: bounds, the loop that closes them, the certificate and its check."""

from phaze_opt.callable_room import make_callable

make_callable(__name__, "phaze_opt.api.designs:certify")
