"""Training, from config to report: every object of a run is built here, by hand, in order.

The flow, which is the same for synchronous (max_staleness 0) and asynchronous training:

    driver.next_groups() -> journal.claim -> collate -> pack -> engine.update -> publish -> driver.published
"""

import asyncio
import signal
import time
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from envhub.envs.curriculum import CurriculumStream
from envhub.envs.tasks import Task
from envhub.errors import EnvHubError, RunFailed
from envhub.journal.store import Journal
from envhub.policy.models import LanguageModel, build, load
from envhub.policy.token_policy import TokenPolicy
from envhub.rollout.driver import RolloutDriver
from envhub.rollout.episode import Stage, play
from envhub.rollout.replay import ReplayBuffer
from envhub.rollout.scheduler import Scheduler
from envhub.runs.config import TrainConfig
from envhub.runs.evaluate import measure
from envhub.runs.folder import RunFolder, open_folder
from envhub.runs.metrics import update_metrics
from envhub.runs.parts import adapt_forever, banned, local_fleet, token_policy, turn_format
from envhub.runs.replay import replay_text
from envhub.runs.resume import Frontier, Progress, find_frontier, refuse_changes
from envhub.runs.seats import with_opponents
from envhub.runs.stage import RandomPlay, build_tasks, held_out, random_episodes, vocabulary
from envhub.runs.status import Watch
from envhub.runs.tasks import learn_from, task_source, training_stage
from envhub.runs.warmup import warm_up
from envhub.telemetry import MetricsSink, read_metrics, setup_logging, truncate_metrics
from envhub.trainer.batch import collate, scored_only
from envhub.trainer.checkpoint import save_checkpoint
from envhub.trainer.engine import TrainEngine
from envhub.trainer.packing import pack
from envhub.trainer.preflight import preflight
from envhub.trainer.publish import publish
from envhub.trainer.recipe import grpo_loss
from envhub.trainer.schedule import learning_rate
from envhub.types import EvalSummary, TrajectoryGroup
from envhub.viewer.live import Display
from envhub.viewer.report import write_report

Groups = tuple[TrajectoryGroup, ...]


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What a run came to. `interrupted`: stopped by a signal (`terminated`: by SIGTERM), with a checkpoint to resume from."""

    run_dir: Path
    updates: int
    interrupted: bool
    terminated: bool = False
    before: EvalSummary | None = None
    after: EvalSummary | None = None
    report: Path | None = None
    replay: str = ""


def train(config: TrainConfig, *, resume: bool, display: Display) -> TrainResult:
    """Train as the config says, or go on where a run of that name stopped.

    Raises:
        ConfigError: the config, the run folder, the environment or the model are not what they should be.
        PreflightError: trainer and sampler disagree.
        RunFailed: too many failed episodes, or updates that are not finite.
    """
    if config.trainer.threads is not None:
        torch.set_num_threads(config.trainer.threads)
    with ExitStack() as stack:
        folder = stack.enter_context(open_folder(config, resume=resume))
        setup_logging("INFO", folder.log)
        journal = stack.enter_context(Journal.open(folder.journal))
        threads = stack.enter_context(ThreadPoolExecutor(16, thread_name_prefix="env"))
        stage = training_stage(config, threads)
        run = TrainRun(config, folder, journal, stage, display)
        try:
            return asyncio.run(with_opponents(run, resume=resume))
        except* EnvHubError as group:
            raise _first(group) from None


class TrainRun:
    """One run in progress. `main` reads top to bottom."""

    def __init__(self, config: TrainConfig, folder: RunFolder, journal: Journal, stage: Stage, display: Display) -> None:
        """Build model, trainer and sampler; nothing is trained yet."""
        self.config, self.folder, self.journal, self.stage, self.display = config, folder, journal, stage, display
        self.tasks = task_source(stage, config)
        self.practice = build_tasks(stage, config.env.options, config.env.split, config.run.seed)
        self.language = self._language()
        self.layout = turn_format(self.language, config.sampler)
        self.bans = banned(self.language, self.layout)
        self.sampler = local_fleet(self.language, config.sampler, adapts=config.rollout.max_in_flight == "auto")
        self.policy: TokenPolicy = token_policy(self.sampler, self.layout, self.language, config.sampler)
        self.replays = ReplayBuffer(config.rollout.replay, max_staleness=config.rollout.max_staleness)
        self.metrics = MetricsSink(folder.metrics)
        self.progress = Progress()
        self._held_out: dict[str, list[Task]] = {}
        self.stopping = asyncio.Event()
        self.began = time.monotonic()
        self.start = Frontier()
        self._saved = 0
        self._agreed = False
        self._bias: Sequence[Sequence[str]] = ()
        self._signal: signal.Signals | None = None

    async def main(self, *, resume: bool) -> TrainResult:
        """Warm up or resume, train, measure, report."""
        self._obey_signals()
        if resume:
            refuse_changes(self.folder, self.config)
            self.start = find_frontier(self.folder, self.journal)
            self.progress = self.start.progress
            truncate_metrics(self.folder.metrics, self.progress.update)
            if isinstance(self.tasks, CurriculumStream) and self.progress.curriculum is not None:
                self.tasks.load(self.progress.curriculum)
            for note in self.start.notes:
                self.display.note(note)
        if self.start.checkpoint is None:
            await self._warm_up()
        self.engine = self._engine(self.config.trainer.learning_rate)
        if self.start.checkpoint is not None:
            self.engine.load(self.start.checkpoint.folder)
        self.scheduler = self._scheduler()
        if self.stopping.is_set():
            return self._interrupted()
        async with self.sampler.running():
            await publish(self.engine.weights(), *self.sampler.engines, version=self.progress.update)
            if self.progress.before is None and self.config.eval.episodes:
                before, _ = await self._measure(self.config.eval.split, "before")
                self.progress = replace(self.progress, before=asdict(before))
            self.display.start(self.config.run.updates)
            await self._replay_claims()
            await self._updates()
            return await self._finish()

    # Building

    def _language(self) -> LanguageModel:
        model = self.config.model
        if model.path is not None:
            return load(model.path, dtype=model.dtype)
        assert model.init is not None
        played = random_episodes(self.stage, self.practice, model.init.vocabulary_episodes, seed=self.config.run.seed)
        return build(model.init, vocabulary(played, ()), seed=self.config.run.seed)

    def _engine(self, rate: float) -> TrainEngine:
        trainer = self.config.trainer.model_copy(update={"learning_rate": rate})
        return TrainEngine(self.language.model, trainer, temperature=self.config.sampler.temperature, ban_ids=self.bans)

    async def _warm_up(self) -> None:
        warmup = self.config.trainer.warmup
        if not warmup.steps:
            return
        self.display.note(f"warming up: {warmup.steps} supervised steps on random play")
        with closing(RandomPlay(self.stage, self.practice)) as playing:
            note = await warm_up(
                self._engine(warmup.learning_rate),
                playing,
                self.language,
                self.layout,
                warmup,
                seed=self.config.run.seed + 1,
                micro_batch_tokens=self.config.trainer.micro_batch_tokens,
                stopping=self.stopping,
            )
        self.display.note(note)

    def _scheduler(self) -> Scheduler:
        config, start = self.config, self.start
        left = config.run.updates - start.progress.update - len(start.claims)
        return Scheduler(
            config.rollout,
            seed=config.run.seed,
            version=start.progress.update + len(start.claims),
            next_index=start.next_index,
            backlog=start.backlog,
            total_groups_wanted=left * config.rollout.groups_per_update,
            attempts=self.journal.attempts(),
        )

    # Training

    async def _replay_claims(self) -> None:
        """Train again, from the journal, what was claimed after the checkpoint: the same data in the same order."""
        reach = self.progress.update - self.config.rollout.max_staleness
        for update, groups in self.journal.claims(after=max(0, reach)) if self.config.rollout.replay else ():
            if update <= self.progress.update:
                self.replays.used(groups)
        for update, groups in self.start.claims:
            if update != self.progress.update + 1:
                raise RunFailed(f"the journal claims update {update} after {self.progress.update}", mend="start a new run")
            await self._update(groups, {"time/rollout_s": 0.0})

    async def _updates(self) -> None:
        if self._finished():
            return
        player = partial(play, self.stage, self.policy)
        driver = RolloutDriver(self.scheduler, player, self.tasks.at, self.journal)
        watch = Watch(self.folder.status, driver, self.display, self.config.run.updates)
        beside = [adapt_forever(self.sampler, driver)] if self.config.rollout.max_in_flight == "auto" else []
        async with driver.running(watch.forever(), *beside):
            while not self._finished():
                waited = time.monotonic()
                watch.doing("waiting for episodes", self.progress.update)
                groups = await self._unless_stopped(driver.next_groups())
                if groups is None:
                    return
                learn_from(self.tasks, driver.taken_constant())
                watch.doing("training", self.progress.update)
                self._preflight(groups)
                again = self.replays.pick(self.progress.update)
                self.journal.claim(self.progress.update + 1, groups, again=again)
                bias = driver.bias()
                facts = {"time/rollout_s": time.monotonic() - waited, **self._lost(), **bias.metrics()}
                self._bias = bias.rows()
                await self._update((*groups, *again), facts)
                if not self._finished():
                    driver.published(self.progress.update)
            watch.doing("ended", self.progress.update)
            watch.write()

    def _preflight(self, groups: Sequence[TrajectoryGroup]) -> None:
        """Once in each process: trainer and sampler agree on episodes that today's weights played."""
        fresh = [t for g in groups for t in g.trajectories if t.oldest_version == self.progress.update]
        if not self._agreed and fresh:
            preflight(self.engine, scored_only(fresh[:16]), dtype=self.language.model.dtype)
            self._agreed = True

    async def _update(self, groups: Sequence[TrajectoryGroup], facts: Mapping[str, float]) -> None:
        update, config = self.progress.update + 1, self.config
        began = time.monotonic()
        floor = update - 1 - config.rollout.max_staleness
        batch = collate(groups, config.algorithm, seed=config.run.seed * 1_000_003 + update, floor=floor)
        stats = None
        if batch.sequences:
            packs = pack(batch.sequences, max_tokens=config.trainer.micro_batch_tokens)
            rate = learning_rate(config.trainer, update, config.run.updates)
            loss = partial(grpo_loss, config=config.algorithm)
            stats = await asyncio.to_thread(self.engine.update, packs, loss, learning_rate=rate)
        trained = time.monotonic()
        bad = self.progress.bad_updates + 1 if stats is not None and stats.skipped else 0
        if bad >= config.trainer.max_bad_updates:
            raise RunFailed(f"{bad} updates in a row were not finite", mend="lower trainer.learning_rate, then resume")
        await publish(self.engine.weights(), *self.sampler.engines, version=update)
        learn_from(self.tasks, [(g.index, g.trajectories) for g in groups if g not in self.replays])
        replayed = sum(g in self.replays for g in groups)
        self.replays.used(groups)
        state = self.tasks.state() if isinstance(self.tasks, CurriculumStream) else None
        self.progress = replace(self.progress, update=update, bad_updates=bad, curriculum=state)
        if state is not None:
            facts = {**facts, "curriculum/level": float(state["level"])}
        row = update_metrics(
            update,
            groups,
            batch,
            stats,
            {
                **facts,
                "groups/replayed": float(replayed),
                "time_s": time.monotonic() - self.began,
                "time/train_s": trained - began,
                "time/publish_s": time.monotonic() - trained,
            },
            max_staleness=config.rollout.max_staleness,
        )
        row.update(await self._middle_evaluation())
        self.metrics.write(row)
        self.display.update(row)
        if update % config.checkpoint.every == 0 or self._finished():
            self._save()

    def _lost(self) -> dict[str, float]:
        """What was not played to its end, or not trained on, so far."""
        stats, abort = self.scheduler.stats(), self.stage.abort
        return {
            "groups/dropped": float(stats.dropped_stale + stats.dropped_constant + stats.dropped_failed),
            "episodes/failed": float(stats.failed_episodes),
            "episodes/aborted": 0.0 if abort is None else float(abort.counts.total()),
        }

    async def _middle_evaluation(self) -> dict[str, float]:
        measure_every = self.config.eval.every
        if not measure_every or self.progress.update % measure_every:
            return {}
        summary, _ = await self._measure(self.config.eval.stop_split, f"middle-{self.progress.update}")
        goal = self.config.eval.stop_at
        if goal is not None and summary.success_rate >= goal:
            self.progress = replace(self.progress, stopped_early=True)
        return {"eval/success": summary.success_rate}

    def _finished(self) -> bool:
        return self.progress.stopped_early or self.progress.update >= self.config.run.updates

    def _save(self) -> None:
        next_index, backlog = self.scheduler.frontier()
        state = {"progress": asdict(self.progress), "next_index": next_index, "backlog": backlog}
        save_checkpoint(
            self.folder.checkpoints, self.progress.update, state, self.engine.save, keep=self.config.checkpoint.keep
        )
        self._saved = self.progress.update

    # Ending

    async def _finish(self) -> TrainResult:
        config = self.config
        if self.stopping.is_set() and not self._finished():
            if self.progress.update and self.progress.update != self._saved:
                self._save()
            return self._interrupted()
        self.language.model.save_pretrained(self.folder.model)
        self.language.tokenizer.save_pretrained(self.folder.model)
        before = None if self.progress.before is None else EvalSummary(**self.progress.before)
        after, replay = None, ""
        if config.eval.episodes:
            after, played = await self._measure(config.eval.split, "after")
            replay = replay_text(played, self.language.tokenizer)
        self.display.close()
        report = write_report(
            self.folder.root,
            title=config.run.name,
            metrics=read_metrics(self.folder.metrics),
            before=before,
            after=after,
            replay=replay,
            bias=self._bias,
            facts={"environment": config.env.id, "updates": str(self.progress.update), "seed": str(config.run.seed)},
        )
        return TrainResult(self.folder.root, self.progress.update, False, False, before, after, report, replay)

    def _interrupted(self) -> TrainResult:
        return TrainResult(self.folder.root, self.progress.update, True, self._signal == signal.SIGTERM)

    async def _measure(self, split: str, stream: str) -> tuple[EvalSummary, Any]:
        if split not in self._held_out:
            self._held_out[split] = held_out(self.stage, self.config.env.options, split, self.config.eval.episodes)
        tasks = self._held_out[split]
        return await measure(
            replace(self.stage, abort=None), self.policy, tasks, samples=1, seed=self.config.run.seed, stream=stream
        )

    # Stopping

    def _obey_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop, number)

    def _stop(self, number: signal.Signals) -> None:
        self._signal = number
        self.stopping.set()

    async def _unless_stopped(self, work: Coroutine[Any, Any, Groups]) -> Groups | None:
        """The work's result, or None if a signal came first; the work is then cancelled."""
        if self.stopping.is_set():
            work.close()
            return None
        async with asyncio.TaskGroup() as group:
            working, stopped = group.create_task(work), group.create_task(self.stopping.wait())
            await asyncio.wait({working, stopped}, return_when=asyncio.FIRST_COMPLETED)
            for task in (working, stopped):
                task.cancel()
        return None if working.cancelled() else working.result()  # groups that were handed over are trained on


def _first(error: BaseException) -> BaseException:
    """The first error inside nested groups: task groups wrap what a person should read plain."""
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
