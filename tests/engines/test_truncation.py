"""What top-k and top-p leave, and the gradient of a draw among it."""

import pytest
import torch

from posttrain.engines.likelihood import drawn_logps, token_logps
from posttrain.engines.sampling import Sampling

CHANCES = torch.tensor([0.5, 0.3, 0.2])


@pytest.mark.parametrize(
    ("sampling", "token", "gradient"),
    [
        (Sampling(top_k=2), 0, [0.375, -0.375, 0.0]),
        (Sampling(top_p=0.6), 1, [-0.625, 0.625, 0.0]),
        (Sampling(top_k=1), 0, [0.0, 0.0, 0.0]),
        (Sampling(top_k=1), 2, [-5 / 7, 0.0, 5 / 7]),
        (Sampling(), 0, [0.5, -0.3, -0.2]),
    ],
    ids=["top_k", "top_p", "no_choice", "a_token_that_is_no_longer_kept", "all"],
)
def test_the_value_is_the_models_and_the_gradient_that_of_the_draw(
    sampling: Sampling, token: int, gradient: list[float]
) -> None:
    """d log(p_i / sum of kept p) / d logit_j = [i = j] - p_j / sum of kept p, 0 outside."""
    logits_BTV = CHANCES.log().expand(2, 4, 3).clone().requires_grad_()
    tokens_BT = torch.full((2, 4), token)
    logps_BT = drawn_logps(logits_BTV, tokens_BT, sampling)
    assert torch.equal(logps_BT, token_logps(logits_BTV, tokens_BT))
    (found_BTV,) = torch.autograd.grad(logps_BT.sum(), logits_BTV)
    torch.testing.assert_close(found_BTV, torch.tensor(gradient).expand(2, 4, 3))
