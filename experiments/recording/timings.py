"""Which keys of a record are timings or facts of the machine; all others are results."""

from collections.abc import Sequence

FACTS = frozenset(["load_average", "load_average_before", "directory", "run", "study_id"])
"""Keys of what describes a run."""
FACTS_OF_META = frozenset(
    [
        "machine",
        "versions",
        "python",
        "numpy",
        "numba",
        "scipy",
        "highspy",
        "pyomo",
        "optuna",
        "scikit_learn",
        "phaze_opt",
        "mlflow",
        "version",
        "date",
        "command",
        "note",
        "cpus",
        "cores",
        "threads_on_space",
    ]
)
"""Keys of ``_meta``, or beside it, that describe the machine, the versions and the run."""
TIMINGS = frozenset(
    [
        "wall_s",
        "none_cpu_ms",
        "planned_cpu_ms",
        "none_table_cpu_s",
        "planned_table_cpu_s",
        "cpu_s",
        "process_s",
        "processor_s",
        "overhead_s",
        "proof_s",
        "proof_wall_s",
        "command_wall_s",
        "evaluating_s",
        "charged_s",
        "help_s",
        "seconds",
        "crude_s",
        "median_ms",
        "p90_ms",
        "least_price_ms_a_chip",
        "least_bound_ms_a_chip",
        "closed_ns_a_degree_and_chip",
        "closed_s_of_all_chips",
        "fitting_s",
        "estimates_s_of_all_chips",
        "make_s",
        "check_s",
        "p99_ms_of_the_second_half",
        "p99_ms",
        "first_s",
        "prepare_s",
        "max_ms",
        "share_within_goal",
        "min_ms",
        "worst_ms",
        "table_ms",
        "memory_ms",
        "program_ms",
        "program_with_incumbent_ms",
        "program_that_finds_none_ms",
        "tight_program_ms",
        "ranking_wall_s",
        "optimal_plan_wall_s",
        "median_ms_each",
        "median_s",
        "worst_s",
        "min_wall_s",
        "median_wall_s",
        "min_cpu_s",
        "worst_wall_s",
        "median_cpu_s_of_open",
        "median_overhead_s",
        "median_processor_s",
        "mean_charged_s",
        "mean_overhead_ms_per_proposal",
        "cpu_us_per_bound",
        "cpu_us_per_evaluation",
        "peak_mb_so_far",
        "exponent",
        "exponent_upper_half",
        "median_seconds_to",
        "added_to_the_study_ms_per_trial",
        "until_all_is_delivered_ms_per_trial",
        "delivery_cpu_ms_per_trial",
        "delivered_trials_per_s",
        "run_ms_per_trial",
        "run_process_ms_per_trial",
        "strategies_and_evaluations_ms_per_trial",
        "overhead_ms_per_trial",
        "run_and_delivery_ms_per_trial",
        "commits_per_s",
        "trials_per_s",
    ]
)
"""Keys of times, and of what follows from them, that the machine decides."""


def is_timing(path: Sequence[str]) -> bool:
    """Whether a key, or one above it, is of the machine."""
    about = path[1] if path[0] == "_meta" and len(path) > 1 else path[0]
    return about in FACTS_OF_META or any(key in TIMINGS or key in FACTS for key in path)
