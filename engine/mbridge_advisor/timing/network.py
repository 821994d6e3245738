"""Which link a communication group uses, and how long its collectives take.

Rank order is Megatron Core's ``tp-cp-ep-dp-pp``: TP neighbours are consecutive ranks, then CP, then DP; pipeline stages
lie furthest apart. In the expert grid ETP neighbours are consecutive, then EP.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..knowledge.model import Gpu
from ..memory.grids import Floats


def inside(size: Floats, stride: Floats, domain: int) -> Floats:
    """Share of a group's members (1 = all) that a rank reaches within its NVLink domain, shape (N,).

    ``stride`` is the distance of neighbours in ranks.
    """
    reach = np.maximum(np.floor(domain / np.maximum(stride, 1)), 1)
    return np.asarray(np.minimum(reach / np.maximum(size, 1), 1.0))


def ring_seconds(bytes_: Floats, size: Floats, stride: Floats, gpu: Gpu, c: Mapping[str, float]) -> Floats:
    """All-gather or reduce-scatter of ``bytes_`` (the full tensor) over a ring: each rank passes (n-1)/n of it on.

    Between NVLink domains the ring is as fast as the network links that a rank's share of the domain has.
    """
    near = inside(size, stride, gpu.nvlink_domain) >= 1
    fast = gpu.nvlink_bandwidth * c["nvlink_efficiency"]
    slow = gpu.network_bandwidth * c["network_efficiency"]
    # Ranks of one domain that belong to the group share the way out: each carries a part.
    helpers = np.minimum(np.maximum(np.floor(gpu.nvlink_domain / np.maximum(stride, 1)), 1), size)
    bandwidth = np.where(near, fast, np.minimum(slow * helpers, fast))
    return np.asarray(bytes_ * (size - 1) / np.maximum(size, 1) / bandwidth)


def all_to_all_seconds(bytes_: Floats, size: Floats, stride: Floats, gpu: Gpu, c: Mapping[str, float]) -> Floats:
    """All-to-all in which a rank sends ``bytes_`` in all, its own share included."""
    near = inside(size, stride, gpu.nvlink_domain)
    local = np.maximum(near - 1 / np.maximum(size, 1), 0)
    far = 1 - near
    return np.asarray(
        np.maximum(
            bytes_ * local / (gpu.nvlink_bandwidth * c["all_to_all_efficiency"]),
            bytes_ * far / (gpu.network_bandwidth * c["network_efficiency"]),
        )
    )


def point_to_point_seconds(bytes_: Floats, stride: Floats, gpu: Gpu, c: Mapping[str, float]) -> Floats:
    """One send to the rank ``stride`` away."""
    near = stride < gpu.nvlink_domain
    return np.asarray(
        bytes_
        / np.where(near, gpu.nvlink_bandwidth * c["nvlink_efficiency"], gpu.network_bandwidth * c["network_efficiency"])
    )
