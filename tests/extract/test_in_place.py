"""Who reads a tensor that was changed in place reads what it has become."""

import pytest

from phaze_opt.errors import InputError
from phaze_opt.extract.recorded_graph import Storage
from phaze_opt.graph.traced.traced_model import TensorRef


class Recorder:
    """A storage with what it recorded."""

    def __init__(self, *independent):
        self.made = []
        self.storage = Storage(self.put_back, lambda name: name not in independent)

    def put_back(self, op, whole, part, arguments):
        self.made.append((op, whole, part, arguments))
        return f"{whole}*"

    def view(self, op, of, out, *arguments):
        self.storage.see(op, (TensorRef(of), *arguments), (out,))


def test_a_change_is_followed_and_a_change_of_a_change():
    storage = Recorder().storage
    storage.change("a", "b", place="here")
    storage.change("b", "c", place="here")
    assert [storage.latest(name) for name in "abcd"] == ["c", "c", "c", "d"]


def test_a_changed_slice_changes_the_whole():
    recorder = Recorder("new")
    recorder.view("aten.slice.Tensor", "new", "left", 1, 0, 4)
    recorder.storage.change("left", "filled", place="here")
    assert recorder.made == [("aten.slice_scatter.default", "new", "filled", (1, 0, 4))]
    assert recorder.storage.latest("new") == "new*"
    recorder.view("aten.slice.Tensor", "new*", "right", 1, 4, 8)
    recorder.storage.change("right", "filled too", place="here")
    assert recorder.storage.latest("new") == "new**"


def test_a_slice_of_a_slice_goes_all_the_way():
    recorder = Recorder()
    recorder.view("aten.select.int", "cube", "plane", 0, 1)
    recorder.view("aten.slice.Tensor", "plane", "rows", 0, 0, 2)
    recorder.storage.change("rows", "new", place="here")
    assert [each[:3] for each in recorder.made] == [
        ("aten.slice_scatter.default", "plane", "new"),
        ("aten.select_scatter.default", "cube", "plane*"),
    ]
    assert recorder.storage.latest("cube") == "cube*"


def test_what_was_changed_through_another_shape_may_not_be_read_again():
    recorder = Recorder()
    recorder.view("aten.view.default", "x", "flat", (-1,))
    recorder.storage.change("flat", "new", place="operation 'relu'")
    assert recorder.storage.latest("flat") == "new"
    with pytest.raises(InputError, match="operation 'relu' changes a tensor in place"):
        recorder.storage.latest("x")


def test_a_view_of_what_was_changed_later_may_not_be_read_again():
    recorder = Recorder()
    recorder.view("aten.view.default", "x", "flat", (-1,))
    recorder.storage.change("x", "new", place="operation 'add'")
    with pytest.raises(InputError, match="operation 'add'"):
        recorder.storage.latest("flat")


def test_values_of_constants_do_not_count():
    recorder = Recorder("x", "flat", "new")
    recorder.view("aten.view.default", "x", "flat", (-1,))
    recorder.storage.change("flat", "new", place="here")
    assert recorder.storage.latest("x") == "x"
