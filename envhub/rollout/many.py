"""Many episodes of a fixed list of tasks, for evaluation: each played once per sample, none retried, none left out."""

import asyncio
import hashlib
from collections.abc import Sequence

from envhub.envs.tasks import Task
from envhub.policy.core import Policy
from envhub.rollout.episode import Place, Stage, play
from envhub.types import Trajectory


async def play_many(
    stage: Stage, policy: Policy, tasks: Sequence[Task], *, samples: int, seed: int, stream: str, concurrency: int = 256
) -> tuple[Trajectory, ...]:
    """Play every task `samples` times, at most `concurrency` episodes at once; the order of results is that of the tasks.

    Episode ids are "<stream>-<place>/<sample>.0"; seeds depend on `seed`, place and sample only.
    """
    room = asyncio.Semaphore(concurrency)

    async def one(place: int, sample: int) -> Trajectory:
        group = f"{stream}-{place:06d}"
        digest = hashlib.blake2b(f"{seed}/{stream}/{place}/{sample}".encode(), digest_size=4).digest()
        where = Place(f"{group}/{sample}.0", group, sample, 0, int.from_bytes(digest, "little") >> 1)
        async with room:
            return await play(stage, policy, tasks[place], where)

    async with asyncio.TaskGroup() as group:
        plays = [group.create_task(one(i, k)) for i in range(len(tasks)) for k in range(samples)]
    return tuple(p.result() for p in plays)
