"""Folds: every cell whole, every row once, the same every time."""

from hypothesis import given
from hypothesis import strategies as st

from phaze_opt.validation.predict import fold_by_cell, leave_one_out

CELLS = st.lists(st.sampled_from([f"cell {index}" for index in range(12)]), min_size=2, max_size=60)


@given(CELLS)
def test_cells_are_never_split_and_rows_are_kept_out_once(cells):
    folds = fold_by_cell(cells)
    num_cells = len(set(cells))
    assert len(folds) == (min(5, num_cells) if num_cells > 1 else 0)
    seen = [index for fold in folds for index in fold.held_out]
    assert sorted(seen) == (list(range(len(cells))) if folds else [])
    for fold in folds:
        assert sorted((*fold.held_out, *fold.kept)) == list(range(len(cells)))
        assert not {cells[index] for index in fold.held_out} & {cells[index] for index in fold.kept}


@given(CELLS, st.randoms(use_true_random=False))
def test_a_cell_s_fold_does_not_depend_on_the_order_of_rows(cells, random):
    shuffled = list(cells)
    random.shuffle(shuffled)

    def parts(rows):
        return [{rows[index] for index in fold.held_out} for fold in fold_by_cell(rows)]

    assert parts(cells) == parts(shuffled)


def test_folds_have_nearly_equal_numbers_of_cells():
    sizes = [len(fold.held_out) for fold in fold_by_cell([f"{index}" for index in range(23)])]
    assert sorted(sizes) == [4, 4, 5, 5, 5]


def test_the_deal_is_fixed():
    # sha256sum orders these letters d f c b e a g: dealt out to five folds, a follows d and g follows f.
    folds = fold_by_cell(["a", "b", "c", "d", "e", "f", "g"])
    assert [fold.held_out for fold in folds] == [(0, 3), (5, 6), (2,), (1,), (4,)]


def test_leaving_labels_out():
    folds = leave_one_out(["x", "", "y", "x"])
    assert [(fold.label, fold.held_out, fold.kept) for fold in folds] == [("x", (0, 3), (1, 2)), ("y", (2,), (0, 1, 3))]
    assert leave_one_out(["x", "x"]) == ()
    assert leave_one_out(["", ""]) == ()
