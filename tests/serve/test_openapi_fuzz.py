"""Schemathesis: what the description allows, and what it doesn't, is answered by the service as described."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from mbridge_advisor.serve.guard import Metrics
from mbridge_advisor.serve.http import http_app
from mbridge_advisor.serve.pool import Pool
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance
from serve.running import Service, running

pytestmark = pytest.mark.xdist_group("openapi_fuzz")
pool = Pool(1)
schema = schemathesis.openapi.from_dict(http_app(pool, Metrics(pool)).openapi())
schema.config.phases.coverage.enabled = False  # thousands of requests, for every setting a few


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with running("--workers", "2", "--timeout", "60") as one:
        yield one
        print(one.client.get("/metrics").text)


@schema.parametrize()
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_answer_is_as_described(case: schemathesis.Case, service: Service) -> None:
    # That a model is known, and goes with the rest, is beyond a schema; and we understand more than it says.
    beyond = [positive_data_acceptance, negative_data_rejection]
    case.call_and_validate(base_url=service.base, excluded_checks=beyond)
