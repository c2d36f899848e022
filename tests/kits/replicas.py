"""The replicas of one pipeline stage on real vectors, ring by ring, and the bytes that each of them sends."""

from collections.abc import Sequence

import numpy as np

from phaze_opt.workload.plan import ParallelPlan

WEIGHT_BYTES, GRADIENT_BYTES = 2, 4


class Replicas:
    """The replicas of one pipeline stage: every device's vectors, and the bytes it has sent.

    Args:
        sizes: parameters of the stage's layers.
        plan: replicas, ZeRO stage and shards.
    """

    def __init__(self, sizes: Sequence[int], plan: ParallelPlan) -> None:
        rng = np.random.default_rng(7)
        self.plan, self.sizes = plan, sizes
        self.sent = np.zeros(plan.data)
        self.start = [rng.integers(-9, 9, size) for size in sizes]
        self.total = [np.zeros(size, int) for size in sizes]
        self.rng = rng
        span = plan.state_shards or plan.data
        self.rings = [list(range(first, first + span)) for first in range(0, plan.data, span)]
        self.across = [list(range(place, plan.data, span)) for place in range(span)]
        # What each device holds between micro-batches: whole vectors, or its own chunk of them.
        self.weights = [[self._kept(device, layer) for layer in self.start] for device in range(plan.data)]
        self.sums: list[list[np.ndarray]] = [[] for _ in range(plan.data)]

    def _ring_of(self, device: int) -> tuple[list[int], int]:
        ring = next(ring for ring in self.rings if device in ring)
        return ring, ring.index(device)

    def _kept(self, device: int, vector: np.ndarray) -> np.ndarray:
        ring, place = self._ring_of(device)
        return np.array_split(vector, len(ring))[place] if self.plan.zero == 3 else vector.copy()

    def _scatter(self, ring: list[int], vectors: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
        """Ring reduce-scatter: the device at place i ends with the sum of chunk i."""
        n = len(ring)
        chunks = {device: [chunk.copy() for chunk in np.array_split(vectors[device], n)] for device in ring}
        for turn in range(n - 1):
            messages = [(place, (place - turn - 1) % n) for place in range(n)]
            held = {place: chunks[ring[place]][chunk].copy() for place, chunk in messages}
            for place, chunk in messages:
                self.sent[ring[place]] += GRADIENT_BYTES * held[place].size
                chunks[ring[(place + 1) % n]][chunk] += held[place]
        return {device: chunks[device][place] for place, device in enumerate(ring)}

    def _gather(self, ring: list[int], parts: dict[int, np.ndarray], width: int) -> dict[int, np.ndarray]:
        """Ring all-gather: everybody ends with the chunks of all, in order."""
        n = len(ring)
        chunks = {device: {place: parts[device]} for place, device in enumerate(ring)}
        for turn in range(n - 1):
            for place, device in enumerate(ring):
                chunk = (place - turn) % n
                self.sent[device] += width * chunks[device][chunk].size
                chunks[ring[(place + 1) % n]][chunk] = chunks[device][chunk]
        return {device: np.concatenate([chunks[device][place] for place in range(n)]) for device in ring}

    def _sum_up(self, ring: list[int], vectors: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
        return self._gather(ring, self._scatter(ring, vectors), GRADIENT_BYTES)

    def _whole(self, layer: int) -> None:
        """ZeRO 3 gathers a layer, which must then be what it was at the start."""
        if self.plan.zero < 3:
            return
        for ring in self.rings:
            found = self._gather(ring, {device: self.weights[device][layer] for device in ring}, WEIGHT_BYTES)
            assert all((each == self.start[layer]).all() for each in found.values())

    def micro_batch(self, *, is_last: bool) -> None:
        """Forward over the layers, backward over them again; gradients differ on every device."""
        layers = range(len(self.sizes))
        for layer in layers:
            self._whole(layer)
        for layer in reversed(layers):
            self._whole(layer)
            own = {device: self.rng.integers(-9, 9, self.sizes[layer]) for device in range(self.plan.data)}
            self.total[layer] += sum(own.values())
            self._keep(layer, own)
        if is_last:
            self._finish()

    def _keep(self, layer: int, own: dict[int, np.ndarray]) -> None:
        """Whole sums below ZeRO 2; from there on only a device's chunk of a sum over its ring."""
        if self.plan.zero >= 2:
            own = {device: part for ring in self.rings for device, part in self._scatter(ring, own).items()}
        for device, gradient in own.items():
            kept = self.sums[device]
            while len(kept) < len(self.sizes):
                kept.append(np.zeros(0, int))
            kept[layer] = gradient if kept[layer].size == 0 else kept[layer] + gradient

    def _finish(self) -> None:
        """What is left to add up, the update of what a device owns, and weights gathered if they are kept whole."""
        for layer in range(len(self.sizes)):
            sums = {device: self.sums[device][layer] for device in range(self.plan.data)}
            if self.plan.zero == 0:
                sums = self._sum_up(list(range(self.plan.data)), sums)
            elif self.plan.zero == 1:
                sums = {device: part for ring in self.rings for device, part in self._scatter(ring, sums).items()}
            if self.plan.zero:
                sums = {device: part for row in self.across for device, part in self._sum_up(row, sums).items()}
            for device in range(self.plan.data):
                self._update(device, layer, sums[device])
            if self.plan.zero in (1, 2):
                for ring in self.rings:
                    parts = {device: self.weights[device][layer] for device in ring}
                    for device, vector in self._gather(ring, parts, WEIGHT_BYTES).items():
                        self.weights[device][layer] = vector

    def _update(self, device: int, layer: int, gradient: np.ndarray) -> None:
        """A step of SGD on the chunk that the device owns, or on all."""
        own = self.weights[device][layer]
        if self.plan.zero in (1, 2):
            ring, place = self._ring_of(device)
            own = np.array_split(own, len(ring))[place]
        self.weights[device][layer] = own - gradient

    def check(self) -> None:
        """Every device must hold what plain training on all samples would have left it."""
        for layer, (start, total) in enumerate(zip(self.start, self.total, strict=True)):
            for device in range(self.plan.data):
                assert (self.weights[device][layer] == self._kept(device, start - total)).all()
