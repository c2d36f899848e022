"""Conformance suite of operator rules: what every `graph.traced.operator_rule.OperatorRule` must satisfy.

A plug-in author derives a test class and overrides two fixtures::

    class TestMine(OperatorRuleConformance):
        @pytest.fixture
        def rule(self):
            return MyRule()

        @pytest.fixture
        def cases(self):
            call = operator_call("mine.op", given(4, 8), weight(8, 16), results=((4, 16),))
            return [RuleCase(call, stash_bytes=64)]

A case states what autograd keeps of a tiny module, in 16-bit elements. Backward has twice the FLOPs of forward unless
a case says otherwise; every tensor that is not data, and every parameter, gets a gradient of its size.
"""

import copy
import pickle
from dataclasses import dataclass
from math import prod

import pytest

from phaze_opt.graph.lowering import kept_bytes
from phaze_opt.graph.operator import Phase
from phaze_opt.graph.program import Node, Tape, Tensor, TensorRole
from phaze_opt.graph.traced.gradients import without_idle_gradients
from phaze_opt.graph.traced.operator_rule import CallOperand, OperatorCall, OperatorRule, Shape, Value
from phaze_opt.testing.isolation import assert_imports_cheaply
from phaze_opt.workload.training import AttentionForm

ELEMENT_BYTES = 2
ID_BYTES = 8


@dataclass(frozen=True, slots=True)
class RuleCase:
    """A call, and what must come of it.

    Attributes:
        call: of the operation.
        stash_bytes: kept for backward besides parameters.
        backward_flops: of both gradients, as a multiple of forward's.
    """

    call: OperatorCall
    stash_bytes: int
    backward_flops: float = 2.0


def given(*shape: int, name: str = "given") -> CallOperand:
    """A tensor that has a gradient; give several of a call names of their own."""
    return CallOperand(shape, Tensor(name, prod(shape), ELEMENT_BYTES, TensorRole.ACTIVATION))


def ids(*shape: int) -> CallOperand:
    """Integers of the model's input."""
    return CallOperand(shape, Tensor("ids", prod(shape), ID_BYTES, TensorRole.ACTIVATION), is_data=True)


def weight(*shape: int) -> CallOperand:
    """A parameter."""
    return CallOperand(shape, parameter_elements=prod(shape))


def operator_call(
    op: str, *inputs: Value, results: tuple[Shape, ...], attention: AttentionForm = AttentionForm.FUSED, **attrs: Value
) -> OperatorCall:
    """A call named ``op``."""
    return OperatorCall(op, "op", inputs, attrs, results, attention)


def record_call(rule: OperatorRule, call: OperatorCall) -> tuple[tuple[Tensor, ...], tuple[Node, ...], Tape]:
    """Results, nodes of forward and backward, and the tape; a gradient comes to every result."""
    tape = Tape(dtype_bytes=ELEMENT_BYTES)
    results = rule.record(tape, call)
    for result in {each.name: each for each in results}.values():
        gradient = Tensor(f"d_{result.name}.given", result.elements, result.element_bytes, TensorRole.GRADIENT)
        tape.pass_gradient(result, gradient)
    tape.run_backward(None)
    gradients = [tape.gradient(each.tensor) for each in call.varying if each.tensor and not each.is_data]
    return results, without_idle_gradients(tape.nodes, gradients), tape


class OperatorRuleConformance:
    """What every rule must satisfy."""

    @pytest.fixture
    def rule(self) -> OperatorRule:
        """The rule under test."""
        raise NotImplementedError

    @pytest.fixture
    def cases(self) -> list[RuleCase]:
        """Calls of its operations."""
        raise NotImplementedError

    def test_is_a_rule_of_named_operations(self, rule: OperatorRule) -> None:
        """Names are of a library and an operation, without overload, each once."""
        assert isinstance(rule, OperatorRule)
        assert rule.operators
        assert len(set(rule.operators)) == len(rule.operators)
        assert all(name.count(".") == 1 for name in rule.operators)

    def test_imports_cheaply_and_pickles(self, rule: OperatorRule) -> None:
        """Loading a rule pulls in nothing heavy, and rules travel to workers."""
        assert_imports_cheaply(rule)
        assert pickle.loads(pickle.dumps(rule)).operators == rule.operators

    def test_every_case_is_of_its_operations(self, rule: OperatorRule, cases: list[RuleCase]) -> None:
        """A case that another rule would record tests nothing."""
        assert cases
        assert all(case.call.op in rule.operators for case in cases)

    def test_results_have_the_sizes_of_the_call(self, rule: OperatorRule, cases: list[RuleCase]) -> None:
        """One result for each shape; the first has its elements."""
        for case in cases:
            results, _, _ = record_call(rule, case.call)
            assert len(results) == len(case.call.results)
            if case.call.results[0]:
                assert results[0].elements == prod(case.call.results[0]), case.call.op

    def test_the_same_call_records_the_same(self, rule: OperatorRule, cases: list[RuleCase]) -> None:
        """Recording keeps no state, and leaves the call as it was."""
        for case in cases:
            before = copy.deepcopy(case.call)
            first, again = (record_call(rule, case.call)[1] for _ in range(2))
            assert first == again
            assert case.call == before

    def test_names_are_unique_within_the_call(self, rule: OperatorRule, cases: list[RuleCase]) -> None:
        """Names of operators and tensors begin with the call's, so that they are unique in a layer."""
        for case in cases:
            _, nodes, _ = record_call(rule, case.call)
            names = [node.name for node in nodes if not node.name.endswith("gradient_sum")]
            assert len(set(names)) == len(names)
            assert all("op" in name for name in names)

    def test_backward_has_its_flops(self, rule: OperatorRule, cases: list[RuleCase]) -> None:
        """Twice those of forward, unless the case says otherwise."""
        for case in cases:
            _, nodes, _ = record_call(rule, case.call)
            forward, backward = (
                sum(
                    node.serial_steps * sum(each.macs for each in node.matmuls) for node in nodes if node.phase is phase
                )
                for phase in (Phase.FORWARD, Phase.BACKWARD)
            )
            assert backward == pytest.approx(case.backward_flops * forward), case.call.op

    def test_every_differentiable_input_has_a_gradient(self, rule: OperatorRule, cases: list[RuleCase]) -> None:
        """Tensors that are not data, whose parts that are taken have one, and all that is read of parameters."""
        for case in cases:
            _, nodes, tape = record_call(rule, case.call)
            for operand in case.call.varying:
                if operand.tensor is not None and not operand.is_data:
                    assert 0 < tape.gradient(operand.tensor).elements <= operand.tensor.elements, case.call.op
            written = [each for node in nodes for each in node.outputs if each.role is TensorRole.WEIGHT_GRADIENT]
            read = {each.name: each for node in nodes for each in node.inputs if each.role is TensorRole.WEIGHT}
            assert sum(each.elements for each in written) == sum(each.elements for each in read.values())
            assert bool(read) == bool(case.call.parameters)

    def test_keeps_what_autograd_keeps(self, rule: OperatorRule, cases: list[RuleCase]) -> None:
        """Bytes of tensors that backward reads, parameters and small statistics left out."""
        for case in cases:
            _, nodes, _ = record_call(rule, case.call)
            kept = kept_bytes([node for node in nodes if node.phase is Phase.BACKWARD])
            assert sum(kept.values()) == case.stash_bytes, (case.call.op, kept)
