"""Games of two policies: rewards per seat, turns by `info["player"]`, and equilibria that are known."""

import asyncio
import itertools
from typing import Any

import pytest
from gymnasium.utils.env_checker import check_env

from envhub.envs import EnvSpec, Task
from envhub.policy.core import Policy
from envhub.policy.scripted_policy import RandomPolicy, ScriptedPolicy, SolverPolicy
from envhub.rollout.episode import Place, Stage, play, play_seats
from envhub.types import StopReason, Trajectory
from envhub_games import duel_connect_four, duel_kuhn_poker, duel_tic_tac_toe
from envhub_games.duel_connect_four import ConnectFour, drop, four, value
from envhub_games.duel_kuhn_poker import CARDS, ENDS, bet_chance, payoff

SPECS = [duel_tic_tac_toe.SPEC, duel_connect_four.SPEC, duel_kuhn_poker.SPEC]
PLACE = Place("g-0/0.0", "g-0", 0, 0, 7)


def stage(spec: EnvSpec, **options: Any) -> Stage:
    return Stage(spec, "1", lambda: spec.make(**options), spec.max_turns)


def seats(spec: EnvSpec, *policies: Policy, task: Task | None = None, **options: Any) -> tuple[Trajectory, ...]:
    return asyncio.run(play_seats(stage(spec, **options), policies, task or Task("0", {}), PLACE))


def lines(*replies: str) -> ScriptedPolicy:
    return ScriptedPolicy(replies)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.id)
def test_the_rules_of_gymnasium_hold_and_forks_go_their_own_way(spec: EnvSpec) -> None:
    env: Any = spec.make()
    check_env(env, skip_render_check=True)
    env.reset(seed=3)
    twin = env.fork()
    action = env.legal_actions()[1]
    assert env.step(action) == twin.step(action)
    before = twin.snapshot()
    for hostile in ("", "\0", "9" * 100_000, "\ud800", "<|im_end|>", "\uff11"):
        twin.restore(before)
        told = twin.step(hostile)
        assert told[1:4] == (0.0, False, False)
        assert told[4]["illegal"]
        changed = {k for k, v in twin.__dict__.items() if k != "_np_random" and v != before[k]}
        assert changed == {"strikes"}


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.id)
@pytest.mark.parametrize("loser", [0, 1])
def test_who_says_nothing_three_times_loses_and_stalling_pays_nobody(spec: EnvSpec, loser: int) -> None:
    legal, answer = ("check", "bet") if "Kuhn" in spec.id else ("1", "2")
    silent = ["no"] * 9
    replies = [lines(legal), lines(*silent)] if loser else [lines(legal, *silent), lines(answer)]
    played = seats(spec, *replies, task=Task.of({"cards": [0, 1], "luck": 0}) if "Kuhn" in spec.id else None)
    assert [t.reward for t in played] == ([1.0, -1.0] if loser else [-1.0, 1.0])
    assert played[loser].stop is StopReason.TERMINATED
    env: Any = spec.make()
    env.reset(seed=1)
    for reply in ("no", "no", legal, "no", "no"):  # a legal move forgives
        assert env.step(reply)[1:3] == (0.0, False)
    assert env.step("no")[1:3] == (-1.0, True)
    assert env.step("no")[1:3] == (0.0, True)  # and it is paid once


def test_a_won_game_of_tic_tac_toe_is_seen_from_both_seats() -> None:
    one, two = seats(duel_tic_tac_toe.SPEC, lines("1", "2", "3"), lines("5", "5", "9"))
    assert (one.stop, two.stop) == (StopReason.TERMINATED, StopReason.TERMINATED)
    assert [t.reward for t in one.turns] == [0.0, 0.0, 1.0]
    assert [t.reward for t in two.turns] == [
        0.0,
        0.0,
        -1.0,
    ]  # the loss came with the other's move, and belongs to its last turn
    assert (one.success, two.success) == (True, False)
    assert (one.id, two.group) == ("g-0/0.0@0", "g-0@1")
    assert two.turns[0].texts == ("X 2 3\n4 5 6\n7 8 9\nYou are player 2.", "5")
    assert two.turns[1].texts[0].startswith("X X 3")  # type: ignore[index]


def test_perfect_play_draws_tic_tac_toe_and_never_loses_to_chance() -> None:
    solver = SolverPolicy(duel_tic_tac_toe.solve)
    assert [t.reward for t in seats(duel_tic_tac_toe.SPEC, solver, solver)] == [0.0, 0.0]
    for seed in range(30):
        place = Place("g-0/0.0", "g-0", 0, 0, seed)
        for mine in (0, 1):
            policies = [RandomPolicy(), RandomPolicy()]
            policies[mine] = solver  # type: ignore[call-overload]
            played = asyncio.run(play_seats(stage(duel_tic_tac_toe.SPEC), policies, Task("0", {}), place))
            assert (played[mine].reward or 0) >= 0


def test_four_in_a_line_is_seen_in_every_direction() -> None:
    assert four("X/X/X/X", "X")
    assert four("XXXX///", "X")
    assert four("X/OX/OOX/OOOX", "X")
    assert four("OOOX/OOX/OX/X", "X")
    assert not four("XXX/X/X/", "X")
    assert not four("XXXX///", "O")


def test_small_boards_have_their_known_values() -> None:
    """4 by 4 is drawn under perfect play, from the empty board and after three moves."""
    exact = 16
    assert value("///", 4, 0, exact) == 0
    assert value(drop(drop(drop("///", 0, "X"), 0, "O"), 1, "X"), 4, 1, 13) == 0
    assert value("XXX/OO//", 4, 0, 1) > 0
    assert value("XXX/OO//", 4, 1, 2) == 0  # the second seat must stop it and can
    value.cache_clear()


def test_the_solver_wins_at_once_stops_threats_and_beats_chance() -> None:
    env = ConnectFour()
    env.reset()
    for move in "112233":
        env.step(move)
    assert duel_connect_four.solve(env) == "4"
    env.reset()
    for move in "17172":
        env.step(move)
    env.board, env.mover = "XXX/O/O////", 1
    assert duel_connect_four.solve(env) == "1"
    solver = SolverPolicy(duel_connect_four.solve)
    wins = [seats(duel_connect_four.SPEC, solver, RandomPolicy(), columns=5, rows=4)[0].reward for _ in range(3)]
    assert sum(w or 0 for w in wins) >= 2


@pytest.mark.parametrize(
    ("cards", "one", "two", "gains"),
    [
        ((2, 0), ["check"], ["check"], (1.0, -1.0)),
        ((0, 2), ["bet"], ["fold"], (1.0, -1.0)),
        ((0, 2), ["bet"], ["call"], (-2.0, 2.0)),
        ((1, 0), ["check", "fold"], ["bet"], (-1.0, 1.0)),
        ((1, 0), ["check", "call"], ["bet"], (2.0, -2.0)),
    ],
)
def test_the_pot_goes_where_it_must(cards: tuple[int, int], one: list[str], two: list[str], gains: tuple[float, float]) -> None:
    task = Task.of({"cards": list(cards), "luck": 0})
    played = seats(duel_kuhn_poker.SPEC, lines(*one), lines(*two), task=task)
    assert tuple(t.reward for t in played) == gains


def test_a_player_never_sees_the_others_card() -> None:
    for cards in itertools.permutations(range(3), 2):
        played = seats(
            duel_kuhn_poker.SPEC, lines("check", "call"), lines("bet"), task=Task.of({"cards": list(cards), "luck": 0})
        )
        for seat, trajectory in enumerate(played):
            text = "".join(str(turn.texts) for turn in trajectory.turns)
            assert f"hold {CARDS[cards[seat]]}" in text
            assert not any(f" {CARDS[c]}." in text for c in range(3) if c != cards[seat])


def game_value(one: Any, two: Any) -> float:
    """The first seat's expected gain when the seats bet with chance one(card, history) and two(card, history)."""

    def walk(cards: tuple[int, int], history: str) -> float:
        if history in ENDS:
            return payoff(cards, history)
        mover = len(history) % 2
        chance: float = (one, two)[mover](cards[mover], history)
        return chance * walk(cards, history + "b") + (1 - chance) * walk(cards, history + "p")

    return sum(walk(cards, "") for cards in itertools.permutations(range(3), 2)) / 6


@pytest.mark.parametrize("alpha", [0.0, 0.2, 1 / 3])
def test_kuhns_equilibrium_loses_a_eighteenth_and_nobody_gains_by_leaving_it(alpha: float) -> None:
    def equilibrium(card: int, history: str) -> float:
        return bet_chance(card, history, alpha)

    assert game_value(equilibrium, equilibrium) == pytest.approx(-1 / 18)
    for choices in itertools.product((0.0, 1.0), repeat=6):  # every deterministic player of either seat

        def first(card: int, history: str, choices: Any = choices) -> float:
            return float(choices[card if history == "" else 3 + card])

        def second(card: int, history: str, choices: Any = choices) -> float:
            return float(choices[card if history == "p" else 3 + card])

        assert game_value(first, equilibrium) <= -1 / 18 + 1e-12
        assert game_value(equilibrium, second) >= -1 / 18 - 1e-12


def test_equilibrium_players_at_the_table_earn_the_games_value() -> None:
    solver, spec = SolverPolicy(duel_kuhn_poker.solve), duel_kuhn_poker.SPEC
    tasks = duel_kuhn_poker.tasks()

    async def many() -> list[float]:
        found = []
        for i in range(4000):
            one, two = await play_seats(stage(spec), (solver, solver), tasks.get("train", i), PLACE)
            assert one.reward == -(two.reward or 0.0)
            found.append(one.reward or 0.0)
        return found

    gains = asyncio.run(many())
    assert sum(gains) / len(gains) == pytest.approx(-1 / 18, abs=0.07)  # three standard errors of 4000 games


def test_the_taught_seat_takes_turns_by_group_and_opponents_fill_the_others() -> None:
    on = Stage(
        duel_tic_tac_toe.SPEC, "1", duel_tic_tac_toe.TicTacToeDuel, 18, opponents=(SolverPolicy(duel_tic_tac_toe.solve),)
    )
    firsts = set()
    for group in range(12):
        place = Place(f"g-{group}/0.0", f"g-{group}", 0, 0, group)
        played = asyncio.run(play(on, RandomPolicy(), Task("0", {}), place))
        assert (played.id, played.group) == (place.id, place.group)
        assert (played.reward or 0) <= 0
        firsts.add(played.turns[0].texts[0].endswith("You are player 1."))  # type: ignore[index]
    assert firsts == {True, False}
