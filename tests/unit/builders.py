"""Trajectories for tests."""

import numpy as np

from envhub.types import FinishReason, Segment, StopReason, Trajectory, TrajectoryGroup, Turn


def trajectory(
    name: str = "train-000000/0.0", *, reward: float | None = 1.0, turns: int = 2, version: int = 0, shown: int = 3
) -> Trajectory:
    """An episode of `turns` turns, each of `shown` observation tokens and one sampled token; reward None means failed."""
    group, _, rest = name.partition("/")
    member, _, attempt = rest.partition(".")
    width = shown + 1
    length = turns * width
    mask = np.arange(length) % width == shown
    segment = Segment(
        token_ids=(np.arange(length) % 7 + 2).astype(np.int32),
        mask=mask,
        logprobs=np.where(mask, -0.5, 0.0).astype(np.float32),
        versions=np.where(mask, version, -1).astype(np.int32),
    )
    played = tuple(
        Turn(
            segment=0,
            observation=(i * width, i * width + shown),
            reply=(i * width + shown, (i + 1) * width),
            reward=(reward or 0.0) if i == turns - 1 else 0.0,
            finish=FinishReason.LENGTH,
            anchor=str(i),
        )
        for i in range(turns)
    )
    return Trajectory(
        id=name,
        group=group,
        member=int(member),
        attempt=int(attempt),
        env_id="test/Env-v1",
        env_version="1",
        task="t",
        seed=5,
        stop=StopReason.FAILED if reward is None else StopReason.TERMINATED,
        turns=played,
        segments=(segment,),
        success=None if reward is None else reward > 0,
        failure="broken" if reward is None else None,
    )


def group(index: int, rewards: list[float], *, turns: int = 2) -> TrajectoryGroup:
    """A whole group with these rewards."""
    name = f"train-{index:06d}"
    members = tuple(trajectory(f"{name}/{i}.0", reward=r, turns=turns) for i, r in enumerate(rewards))
    return TrajectoryGroup(name, index, "t", members)
