"""Advantage transforms: an estimate in, a changed estimate out; they run in the order given.

To add one, write the function, name its paper in the docstring, and add a line to
ADVANTAGE_TRANSFORMS.
"""

from collections.abc import Callable

from posttrain.rl.scored import Estimate, Scored

Transform = Callable[..., Estimate]


def bounded(estimate: Estimate, _scored: Scored, /, *, limit: float = 5.0) -> Estimate:
    """Clamp every advantage to [-limit, limit]; the limit is ours."""
    cut = [advantage.clamp(-limit, limit) for advantage in estimate.advantages]
    pairs = zip(cut, estimate.advantages, strict=True)
    hit = sum(int((new != old).sum()) for new, old in pairs)
    share = hit / max(1, sum(map(len, cut)))
    return estimate._replace(advantages=cut, metrics=estimate.metrics | {"bounded/share": share})


ADVANTAGE_TRANSFORMS: dict[str, Transform] = {"bounded": bounded}
