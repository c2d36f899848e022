"""Recipes of N:M sparse training: FLOPs against the paper's means and against a count step by step."""

from fractions import Fraction

import pytest

from phaze_opt.errors import InputError
from phaze_opt.workload.sparsity import Pattern, RecipeKind, SparseRecipe, SparseWeights, parse_recipe


@pytest.mark.parametrize(
    ("text", "density"),
    [
        ("1:16,recipe=stepwise", Fraction(3, 8)),
        ("1:8,recipe=stepwise", Fraction(7, 16)),
        ("1:8,recipe=geometric", Fraction(1, 8)),
        ("2:4", Fraction(1, 2)),
        ("2:4,recipe=mask-decay,dense=0.1,fine_tune=0.2", Fraction(9, 10)),
    ],
)
def test_mean_densities_of_the_recipes(text: str, density: Fraction) -> None:
    assert parse_recipe(text).mean_density == density


def test_stepwise_frames_are_those_of_the_paper() -> None:
    phases = parse_recipe("1:16,recipe=stepwise,dense=1/6").phases
    assert [str(each.weights.pattern) if each.weights else "dense" for each in phases] == [
        "dense", "15:16", "8:16", "4:16", "2:16", "1:16",
    ]  # fmt: skip
    assert {each.share for each in phases} == {Fraction(1, 6)}


def test_geometric_frames_keep_their_density() -> None:
    phases = parse_recipe("2:4,recipe=geometric,fine_tune=0.2").phases
    assert [str(each.weights.pattern) for each in phases if each.weights] == ["16:32", "8:16", "4:8", "2:4"]
    assert phases[-1].share == Fraction(4, 10)


@pytest.mark.parametrize("kind", RecipeKind)
@pytest.mark.parametrize("pattern", [Pattern(2, 4), Pattern(1, 8)])
@pytest.mark.parametrize("is_transposable", [False, True])
def test_flops_are_those_of_every_step_counted(kind: RecipeKind, pattern: Pattern, is_transposable: bool) -> None:  # noqa: FBT001
    """One product of one block of weights, step by step, over as many steps as make every phase whole."""
    recipe = SparseRecipe(pattern, kind, Fraction(1, 10), Fraction(1, 5), is_transposable)
    steps, columns = 120 * 10, 1024 * 8
    counted, done = 0, Fraction(0)
    for phase in recipe.phases:
        kept = columns
        if phase.weights is not None:
            pattern = phase.weights.pattern
            kept = sum(1 for column in range(columns) if column % pattern.of < pattern.kept)
        for _ in range(int(phase.share * steps)):
            counted += kept + (kept if is_transposable else columns) + columns
        done += phase.share
    assert done == 1
    assert recipe.training_flops(3 * columns, 3 * columns) * steps == counted


def test_products_of_2_to_4() -> None:
    assert SparseWeights(Pattern(2, 4)).flops_share == Fraction(5, 6)
    assert SparseWeights(Pattern(2, 4), is_transposable=True).flops_share == Fraction(2, 3)


def test_a_recipe_without_phases_has_one_pattern() -> None:
    assert parse_recipe("2:4,transposable=yes,fine_tune=0.3").only_weights == SparseWeights(
        Pattern(2, 4), is_transposable=True
    )
    assert parse_recipe("2:4,dense=0.1").only_weights is None


@pytest.mark.parametrize(
    "text",
    ["", "2", "4:4", "0:4", "1:2048", "2:4,dense=1", "2:4,dense=0.6,fine_tune=0.4", "2:4,dense=-0.1", "2:4,dense=1/0",
     "3:8,recipe=stepwise", "2:4,recipe=fast", "2:4,mask=1", "2:4,dense=0.1,dense=0.1", "2:4,transposable=maybe"],
)  # fmt: skip
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_recipe(text)


def test_a_pattern_that_cannot_be_is_told_what_n_and_m_are() -> None:
    with pytest.raises(InputError, match=r"'5:4' cannot be: N:M keeps N of every M weights, so N is from 1 to M - 1"):
        parse_recipe("5:4")
