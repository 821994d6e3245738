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


def copies(group: Floats, topk: float) -> Floats:
    """Members of a group that a token reaches on average when its top-k experts lie evenly over them."""
    return np.asarray(group * (1 - (1 - 1 / np.maximum(group, 1)) ** topk))


def all_to_all_seconds(
    token_bytes: Floats, topk: float, size: Floats, stride: Floats, once: bool, gpu: Gpu, c: Mapping[str, float]
) -> Floats:
    """Dispatch (or combine) of ``token_bytes``, each token to its top-k experts spread over the group.

    ``once``: the dispatcher sends a token to a rank once, however many of its experts live there, and between NVLink
    domains once for each domain, where it is passed on (DeepEP, HybridEP); otherwise it sends a copy for each expert.
    """
    near = inside(size, stride, gpu.nvlink_domain)
    domains = np.maximum(1 / near, 1)
    sent = copies(size, topk) if once else topk * np.ones_like(near)
    away = copies(domains, topk) if once else topk * np.ones_like(near)
    local = sent * (1 - 1 / np.maximum(size, 1)) if once else sent * np.maximum(near - 1 / np.maximum(size, 1), 0)
    return np.asarray(
        token_bytes
        * np.maximum(
            local / (gpu.nvlink_bandwidth * c["all_to_all_efficiency"]),
            away * (1 - 1 / domains) / (gpu.network_bandwidth * c["network_efficiency"]),
        )
    )


def point_to_point_seconds(bytes_: Floats, stride: Floats, gpu: Gpu, c: Mapping[str, float]) -> Floats:
    """One send to the rank ``stride`` away."""
    near = stride < gpu.nvlink_domain
    return np.asarray(
        bytes_
        / np.where(near, gpu.nvlink_bandwidth * c["nvlink_efficiency"], gpu.network_bandwidth * c["network_efficiency"])
    )
