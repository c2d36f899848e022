"""The MLP of a block: dense, or a mixture of experts behind a router; with its exact parameter counts."""

from dataclasses import dataclass

from phaze_opt.errors import InputError


@dataclass(frozen=True, slots=True)
class MlpSpec:
    """A dense MLP, or one expert.

    Attributes:
        hidden_size: channels that enter and leave.
        width: channels inside.
        is_gated: three matmuls and a gated activation instead of two.
        has_bias: whether its matmuls have biases.
        has_relu: the activation is a ReLU, whose backward reads its output.
        is_gate_combined: one matmul makes gate and values.
        has_dropout: whether training drops activations inside.
    """

    hidden_size: int
    width: int
    is_gated: bool = False
    has_bias: bool = False
    has_relu: bool = False
    is_gate_combined: bool = False
    has_dropout: bool = False

    @property
    def matmul_parameters(self) -> int:
        """Weights of its matmuls."""
        return (3 if self.is_gated else 2) * self.hidden_size * self.width

    @property
    def num_parameters(self) -> int:
        """All of them."""
        biases = self.hidden_size + self.width * (2 if self.is_gated else 1)
        return self.matmul_parameters + (biases if self.has_bias else 0)

    @property
    def active_parameters(self) -> int:
        """Weights of the matmuls that one token meets."""
        return self.matmul_parameters

    @property
    def idle_parameters(self) -> int:
        """Parameters that one token does not meet."""
        return 0


@dataclass(frozen=True, slots=True)
class ExpertRouting:
    """Experts that a token meets.

    Attributes:
        num_active: how many.
        num_groups, num_active_groups: of so many of so many groups alone; 0 and 0 where it may meet any.
    """

    num_active: int
    num_groups: int = 0
    num_active_groups: int = 0

    def num_places(self, places: int) -> float:
        """On how many of some places, each with as many experts, those of one token lie on average.

        Experts of a token lie on any place alike; groups lie on places of their own, or share them.
        """
        met = places * (1.0 - (1.0 - 1.0 / places) ** self.num_active)
        if not self.num_groups:
            return met
        return min(met, self.num_active_groups * max(1.0, places / self.num_groups))


@dataclass(frozen=True, slots=True)
class ExpertsSpec:
    """A router and experts, of which a token meets some; perhaps an expert that every token meets.

    Attributes:
        expert: one of the routed experts.
        num_experts: of them.
        num_active: that one token meets.
        shared: what every token meets besides.
        has_router_bias: whether the router has a bias.
        num_groups, num_active_groups: a token meets experts of so many of so many groups alone (node-limited routing);
            0 and 0 where it may meet any.
    """

    expert: MlpSpec
    num_experts: int
    num_active: int
    shared: MlpSpec | None = None
    has_router_bias: bool = False
    num_groups: int = 0
    num_active_groups: int = 0

    def __post_init__(self) -> None:
        """Check the rule that joins the numbers of experts."""
        if self.num_active > self.num_experts:
            message = f"{self.num_active} active experts must not exceed {self.num_experts}"
            raise InputError(message)
        if not 0 <= self.num_active_groups <= self.num_groups or self.num_experts % max(1, self.num_groups):
            given = f"{self.num_active_groups} of {self.num_groups} groups"
            message = f"{given} are no part of {self.num_experts} experts in equal groups"
            raise InputError(message)

    @property
    def routing(self) -> "ExpertRouting":
        """Which of them a token meets."""
        return ExpertRouting(self.num_active, self.num_groups, self.num_active_groups)

    @property
    def hidden_size(self) -> int:
        """Channels that enter and leave."""
        return self.expert.hidden_size

    @property
    def router_parameters(self) -> int:
        """Weights of the router."""
        return self.hidden_size * self.num_experts

    @property
    def num_parameters(self) -> int:
        """All of them."""
        router = self.router_parameters + (self.num_experts if self.has_router_bias else 0)
        shared = 0 if self.shared is None else self.shared.num_parameters
        return router + self.num_experts * self.expert.num_parameters + shared

    @property
    def active_parameters(self) -> int:
        """Weights of the matmuls that one token meets, the router's with them."""
        shared = 0 if self.shared is None else self.shared.matmul_parameters
        return self.router_parameters + self.num_active * self.expert.matmul_parameters + shared

    @property
    def idle_parameters(self) -> int:
        """Parameters of the experts that one token does not meet."""
        return (self.num_experts - self.num_active) * self.expert.num_parameters
