"""What the rollout scheduler does, in simulation: `python benchmarks/scheduling.py`.

Deterministic but for the CPU times of (f).
The scheduler is the one that trains; only the clock and the episodes are drawn. Peers are in `scheduling_peers.py`.
"""

import json
import sys
import time
import tracemalloc
from collections.abc import Callable
from statistics import fmean
from typing import Any

import numpy as np
from scheduling_peers import Peer

from envhub.rollout.config import RolloutConfig
from envhub.rollout.engines import EngineModel
from envhub.rollout.leases import Lease, Outcome, Start
from envhub.rollout.scheduler import Scheduler
from envhub.rollout.simulate import Simulation, simulate
from envhub.rollout.workload import Draws, Workload

FOREVER = {"episode_deadline_s": 1e9, "group_deadline_s": 1e9}
Make = Callable[[RolloutConfig], Any]


def config(**values: Any) -> RolloutConfig:
    """Without deadlines, unless they are given."""
    return RolloutConfig.model_validate(FOREVER | values)


class Measured(Draws):
    """Durations from a table, by place in the stream."""

    def __init__(self, work: Workload, table: list[float]) -> None:
        super().__init__(work)
        self._table = table

    def seconds(self, index: int, member: int) -> float:
        return self._table[index * 2 + member]


def turns(say: Callable[[str], None]) -> dict[str, Any]:
    """(a) 256 environments, 30 turns, latency N(10, sigma) a turn (cut at 0): every one on its own clock, or turn by turn."""
    say("\n(a) trajectory- over batch-level: seconds of a rollout of 256 environments x 30 turns, 1 s of generation a turn")
    say("| sigma | batch-level | trajectory-level | speed-up |\n|---|---|---|---|")
    found = {}
    for sigma in (1, 2, 5, 10):
        latencies = np.maximum(np.random.default_rng(sigma).normal(10, sigma, (256, 30)), 0.0) + 1.0
        batch = float(latencies.max(axis=0).sum())
        work = Workload(slots=256, updates=1, train_s=0, seed=sigma)
        own = simulate(
            config(group_size=2, groups_per_update=128), work, draws=Measured(work, latencies.sum(axis=1).tolist())
        ).seconds
        found[sigma] = batch / own
        say(f"| {sigma} | {batch:.0f} | {own:.0f} | {batch / own:.2f} |")
    return {"speedup": found}


def row(name: str, run: Simulation, bound: float) -> str:
    """One line of table (b)."""
    return (
        f"| {name} | {run.steady_s:.2f} | {run.steady_s / bound:.2f} | {run.staleness_mean:.2f} / {run.staleness_max} | "
        f"{run.tokens_above:.1%} | {run.tokens_masked:.1%} | {run.dropped / max(1, run.dropped + run.trained):.1%} | "
        f"{run.duration_bias:.3f} |"
    )


def staleness(say: Callable[[str], None]) -> dict[str, Any]:
    """(b) lognormal durations, 64 tasks an update, one at a time on each slot, training 1 s."""
    found: dict[str, Any] = {}
    for title, shared, size, slots in (
        ("all episodes of a task last equally long", 1.0, 2, 128),
        ("every episode draws its own duration, 8 a task", 0.0, 8, 512),
    ):
        for sigma in (0.5, 1.0, 1.5):
            say(f"\n(b) 64 tasks, {title}, sigma {sigma}; seconds an update against the bound max(work / slots, training)")
            say(
                "| scheduler | s/update | over bound | lag mean / most | trained above bound | masked | dropped | length bias |"
            )
            say("|---|---|---|---|---|---|---|---|")
            work = Workload(slots=slots, sigma=sigma, shared=shared, updates=300)
            runs: dict[str, Simulation] = {}
            for lag in (0, 1, 2, 3, 4):
                given = config(group_size=size, groups_per_update=64, max_staleness=lag)
                runs[f"EnvHub, staleness {lag}"] = simulate(given, work)
            two = config(group_size=size, groups_per_update=64, max_staleness=2, stale="drop")
            peers: dict[str, Make] = {
                "one step off, batches": lambda c: Peer(c, batches=1),
                "AReaL-style admission, 2": Peer,
                "TRL-style dropping, 2": lambda c: Peer(c, hard=True),
            }
            runs |= {name: simulate(two, work, make) for name, make in peers.items()}
            bound = max(1.0, runs["EnvHub, staleness 2"].issued_mean_s)
            for name, run in runs.items():
                say(row(name, run, bound))
            key = "task" if shared else "episode"
            found[f"{key}/{sigma}"] = {name: run.steady_s / bound for name, run in runs.items()}
    return found


def faults(say: Callable[[str], None]) -> dict[str, Any]:
    """(c) episodes that never end, or take ten times as long."""
    say(
        "\n(c) faults: seconds an update (over the same without faults); 32 tasks x 8, sigma 0.3, training 0.2 s, deadline 20 s"
    )
    ours = "sync | sync, twins | + long rounds | staleness 2, twins | bias of all these"
    say(f"| fault | share | {ours} | redundancy, first to end | its bias |")
    say("|---|---|---|---|---|---|---|---|---|")
    limits = {"group_size": 8, "groups_per_update": 32, "episode_deadline_s": 20, "group_deadline_s": 200}
    found, first = {}, {}
    for fault in ("fail_slow", "fail_stop"):
        for share in (0.0, 0.02, 0.05):
            work = Workload.model_validate({"slots": 400, "sigma": 0.3, "train_s": 0.2, "updates": 120, fault: share})
            runs = {
                "sync": simulate(config(**limits), work, lambda c: Peer(c, batches=0)),
                "twins": simulate(config(**limits, hedge_after=1.0), work),
                "long": simulate(config(**limits, hedge_after=1.0, extra_groups=16), work),
                "async": simulate(config(**limits, hedge_after=1.0, max_staleness=2), work),
                "redundancy": simulate(config(**limits), work, lambda c: Peer(c, batches=0, extra_groups=4, extra_members=2)),
            }
            first = first or {name: run.steady_s for name, run in runs.items()}
            cells = {name: f"{run.steady_s:.2f} ({run.steady_s / first[name]:.2f}x)" for name, run in runs.items()}
            found[f"{fault}/{share}"] = {name: run.steady_s for name, run in runs.items()}
            bias = min(run.duration_bias for name, run in runs.items() if name != "redundancy")
            shown = " | ".join(cells[name] for name in ("sync", "twins", "long", "async"))
            theirs = f"{cells['redundancy']} | {runs['redundancy'].duration_bias:.3f}"
            say(f"| {fault} | {share:.0%} | {shown} | {bias:.3f} | {theirs} |")
    return found


def headline(say: Callable[[str], None]) -> dict[str, Any]:
    """(d) the settings in which others give their best figures, over the same synchronous baseline."""
    say("\n(d) over a synchronous baseline that waits for its whole batch")
    say("| setting | baseline s/update | EnvHub s/update | speed-up | theirs | length bias |\n|---|---|---|---|---|---|")
    agentic = Workload(slots=512, sigma=1.0, shared=0.5, train_s=0.5, updates=120)
    base = simulate(config(group_size=8, groups_per_update=64), agentic, lambda c: Peer(c, batches=0))
    ours = simulate(config(group_size=8, groups_per_update=64, max_staleness=2), agentic)
    tails = Workload(slots=768, sigma=1.0, shared=0.5, train_s=0.5, updates=240)
    packed = simulate(config(group_size=8, groups_per_update=64, extra_groups=32), tails)
    rows = {
        "agentic, asynchronous, staleness 2 (ROLL Flash: 2.72)": (base, ours, 2.72),
        "on-policy, long rounds (RollPacker: 2.56)": (
            simulate(config(group_size=8, groups_per_update=64), tails),
            packed,
            2.56,
        ),
    }
    for name, (before, after, theirs) in rows.items():
        ratio = before.steady_s / after.steady_s
        say(f"| {name} | {before.steady_s:.2f} | {after.steady_s:.2f} | {ratio:.2f} | {theirs} | {after.duration_bias:.3f} |")
    return {name: before.steady_s / after.steady_s for name, (before, after, _) in rows.items()}


def wasted(say: Callable[[str], None]) -> dict[str, Any]:
    """(e) tokens that are thrown away when new weights arrive: turns keep theirs, or are aborted and made anew."""
    say("\n(e) tokens lost at weight updates, staleness 2, sigma 1, 10 turns an episode: share of all sampled")
    work = Workload(slots=128, sigma=1.0, shared=1.0, updates=300, turns=10)
    run = simulate(config(group_size=2, groups_per_update=64, max_staleness=2), work)
    lost = run.interrupted_s / (run.interrupted_s + run.busy_s)
    say(f"| turns go on under the new weights (EnvHub) | 0.0% |\n| abort the turn and generate it anew | {lost:.1%} |")
    return {"abort_and_regenerate": lost, "envhub": 0.0}


def cost(say: Callable[[str], None]) -> dict[str, Any]:
    """(f) CPU and memory of the scheduler alone."""
    say("\n(f) the scheduler's own cost")
    say("| live episodes | CPU us an event, median of 5 | bytes an episode |\n|---|---|---|")
    found = {}
    for live in (1_000, 10_000, 100_000):
        times, memory = [], 0.0
        for trial in range(5):
            tracemalloc.start() if trial == 0 else None
            scheduler = Scheduler(
                config(group_size=8, groups_per_update=live // 8, max_staleness=2, max_in_flight=live), seed=1
            )
            leases: list[Lease] = [c.lease for c in scheduler.begin(0.0) if isinstance(c, Start)]
            if trial == 0:
                memory = tracemalloc.get_traced_memory()[0] / live
                tracemalloc.stop()
                continue
            began, events, now = time.process_time(), 20_000, 0.0
            place = 0
            for _ in range(events):
                if place == len(leases):  # all that may be played is: the trainer takes an update
                    commands = scheduler.take(now).commands
                    version = scheduler.stats().finished
                    commands = (*commands, *scheduler.published(version, now))
                else:
                    now += 0.001
                    commands = tuple(
                        scheduler.finished(leases[place].id, Outcome(float(place % 2), 0, 10, 3, None, 10**9), now)
                    )
                    place += 1
                leases += [c.lease for c in commands if isinstance(c, Start)]
                scheduler.next_deadline()
            times.append((time.process_time() - began) / events * 1e6)
        found[live] = sorted(times)[len(times) // 2]
        say(f"| {live:,} | {found[live]:.1f} [{min(times):.1f}, {max(times):.1f}] | {memory:,.0f} |")
    began = time.process_time()
    big = Workload(slots=32_768, updates=62, sigma=1.0, shared=0.5)
    run = simulate(config(group_size=16, groups_per_update=1024, max_staleness=2), big)
    seconds = time.process_time() - began
    say(f"\na million episodes ({run.trained:,} trained, {run.events:,} events) on {big.slots:,} slots: {seconds:.0f} CPU s")
    return {"us_per_event": found, "million_cpu_s": seconds, "mean_lag": fmean([run.staleness_mean])}


def bias(say: Callable[[str], None]) -> dict[str, Any]:
    """(g) whether what is trained on looks like what was issued."""
    say("\n(g) bias of duration: trained over issued mean, and p of the test that both are alike; 64 tasks x 8, sigma 1")
    say("| scheduler | length bias | p |\n|---|---|---|")
    work = Workload(slots=512, sigma=1.0, shared=0.0, updates=200)
    wide = work.model_copy(update={"slots": 768})
    size: dict[str, Any] = {"group_size": 8, "groups_per_update": 64}
    runs = {
        "synchronous": simulate(config(**size), work),
        "staleness 1": simulate(config(**size, max_staleness=1), work),
        "staleness 2": simulate(config(**size, max_staleness=2), work),
        "staleness 4": simulate(config(**size, max_staleness=4), work),
        "on-policy, long rounds": simulate(config(**size, extra_groups=32), wide),
        "EnvHub told to drop: staleness 2, stale=drop": simulate(config(**size, max_staleness=2, stale="drop"), work),
        "TRL-style dropping, 2": simulate(config(**size, max_staleness=2), work, lambda c: Peer(c, hard=True)),
        "redundancy, first to end": simulate(
            config(**size), wide, lambda c: Peer(c, batches=0, extra_groups=8, extra_members=2)
        ),
    }
    for name, run in runs.items():
        say(f"| {name} | {run.duration_bias:.3f} | {run.bias.measures['seconds'].p:.2g} |")
    return {name: run.bias.measures["seconds"].p for name, run in runs.items()}


def served(say: Callable[[str], None]) -> dict[str, Any]:
    """(h) tokens a second of modelled engines, by episodes in flight: fixed, or adapted from 8 on."""
    fixed = (16, 32, 64, 128, 256, 512)
    say("\n(h) sampled tokens a second, by episodes in flight; 10 turns, 64 tasks x 8, staleness 2, 20 updates")
    say(f"| engines | {' | '.join(map(str, fixed))} | adapted | over the best fixed | over 256 |\n|{'---|' * (len(fixed) + 4)}")
    base = EngineModel()
    small = {"kv_tokens": 150_000, "prefill_s": 1e-4}
    models = {
        "one, cache of 400,000 tokens": base,
        "one, cache of 150,000, slow prompts": base.model_copy(update=small),
        "one, cache of 50,000, slow prompts": base.model_copy(update=small | {"kv_tokens": 50_000}),
        "one, environments of 5 s a step": base.model_copy(update={"env_s": 5.0}),
        "one, 32 rows": base.model_copy(update={"max_rows": 32}),
        "eight, cache of 100,000": base.model_copy(update={"count": 8, "kv_tokens": 100_000}),
        "eight, without affinity": base.model_copy(update={"count": 8, "kv_tokens": 100_000, "affinity": False}),
    }
    found = {}
    for name, model in models.items():
        rates = {}
        for limit in (*fixed, "auto"):
            work = Workload(slots=limit if isinstance(limit, int) else 4096, sigma=0.5, turns=10, updates=20, engines=model)
            made = config(group_size=8, groups_per_update=64, max_staleness=2, max_in_flight=limit)
            rates[limit] = simulate(made, work).sampled_per_s
        best = max(rates[limit] for limit in fixed)
        cells = " | ".join(f"{rate:,.0f}" for rate in rates.values())
        say(f"| {name} | {cells} | {rates['auto'] / best:.2f} | {rates['auto'] / rates[256]:.2f} |")
        found[name] = {"over_best": rates["auto"] / best, "over_256": rates["auto"] / rates[256]}
    return found


PARTS = {"a": turns, "b": staleness, "c": faults, "d": headline, "e": wasted, "f": cost, "g": bias, "h": served}


def main() -> None:
    """All tables, or those named on the command line; figures as JSON in the last line."""
    wanted = [part for part in sys.argv[1:] if part in PARTS] or list(PARTS)
    found = {part: PARTS[part](lambda line: sys.stdout.write(line + "\n")) for part in wanted}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
