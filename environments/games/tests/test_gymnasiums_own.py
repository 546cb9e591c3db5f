"""CliffWalking and Blackjack: as Gymnasium plays them, and as they are played best."""

import random

import pytest
from gymnasium.envs.toy_text.blackjack import BlackjackEnv
from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv

from envhub_games import blackjack
from envhub_games.blackjack import BUST, Blackjack, ends, hit_worth, solve, stick_worth
from envhub_games.cliff_walking import MOVES, START, CliffWalking, policy

SHOWING = (2, 3, 4, 5, 6, 7, 8, 9, 10, 1)


@pytest.mark.parametrize("slippery", [False, True])
def test_a_walk_is_gymnasiums(slippery: bool) -> None:
    for seed in range(10):
        ours, plain, chance = CliffWalking(slippery=slippery), CliffWalkingEnv(is_slippery=slippery), random.Random(seed)
        ours.reset(seed=seed)
        plain.reset(seed=seed)
        for _ in range(60):
            move = chance.choice(list(MOVES))
            _, reward, done, _, info = ours.step(move)
            place, wanted, ended, _, _ = plain.step(MOVES[move])  # type: ignore[no-untyped-call]
            assert (info["anchor"], reward, done) == (str(int(place)), wanted, ended)
            if done:
                break


def test_the_cliff_is_passed_in_thirteen_moves_and_a_fall_costs_a_hundred() -> None:
    env = CliffWalking()
    shown, _ = env.reset()
    assert shown == "............\n............\n............\n@CCCCCCCCCCG"
    assert env.step("right")[:3] == (shown, -100.0, False)
    assert env.step("Where am I?")[1] == -1.0
    results = [env.step(move) for move in ["up", *["right"] * 11, "down"]]
    assert [result[1] for result in results] == [-1.0] * 13
    assert (results[-1][2], results[-1][4]["success"]) == (True, True)
    assert not any(result[2] for result in results[:-1])


def test_on_firm_ground_the_policy_hugs_the_cliff_and_on_ice_it_keeps_away() -> None:
    firm, ice = policy(False), policy(True)
    assert [firm[place] for place in (START, 24, 34, 35)] == ["up", "right", "right", "down"]
    assert [ice[place] for place in (START, *range(25, 34))] == ["left", *["up"] * 9]


def test_a_hand_is_dealt_and_paid_as_gymnasium_does() -> None:
    for seed in range(200):
        ours, plain, chance = Blackjack(), BlackjackEnv(sab=True), random.Random(seed)
        ours.reset(options={"task": {"deal": seed}})
        (total, showing, soft), _ = plain.reset(seed=seed)
        done = False
        while not done:
            assert (ours.hand(), ours.dealer()) == ((total, bool(soft)), showing) or total > 21
            move = chance.choice(("hit", "stick"))
            _, reward, done, _, info = ours.step(move)
            (total, showing, soft), wanted, ended, _, _ = plain.step(int(move == "hit"))  # type: ignore[no-untyped-call]
            assert (reward, done, info["success"]) == (wanted, ended, wanted > 0)


def test_the_dealers_second_card_is_seen_when_the_hand_is_over_and_not_before() -> None:
    env = Blackjack()
    shown, _ = env.reset(options={"task": {"deal": 1}})
    assert shown == "you: 10 10 (sum 20)\ndealer: 7 ?"
    assert env.step("er")[0] == f"{shown}\nSay hit or stick."
    told, _, done, _, _ = env.step("I stick.")
    assert done
    assert told.splitlines()[1].startswith("dealer: 7 ")
    assert "?" not in told


def test_the_solver_hits_eleven_and_sticks_on_twenty() -> None:
    env, seen = Blackjack(), dict[int, str]()
    for deal in range(100):
        env.reset(options={"task": {"deal": deal}})
        seen[env.hand()[0]] = solve(env)
    assert (seen[11], seen[20]) == ("hit", "stick")


def test_chances_of_the_dealer() -> None:
    assert ends((16, False))[BUST] == pytest.approx(8 / 13)  # 6, 7, 8, 9 and four kinds of ten
    assert ends((16, False))[17] == pytest.approx(1 / 13)
    assert blackjack._sum((1, 10)) == (21, True)
    assert blackjack._with((15, True), 10) == (15, False)
    assert hit_worth((20, False), 5) == pytest.approx(-12 / 13 + stick_worth(21, 5) / 13)  # only an ace does not bust
    for card in SHOWING:
        assert sum(ends((card if card > 1 else 11, card == 1)).values()) == pytest.approx(1.0)


def test_the_computed_strategy_is_sutton_and_bartos() -> None:
    """Reinforcement Learning, figure 5.2: where to hit against 2 to 10 and ace."""
    hard = {**dict.fromkeys(range(4, 12), "H" * 10), 12: "HH...HHHHH", **dict.fromkeys(range(13, 17), ".....HHHHH")}
    soft = {**dict.fromkeys(range(12, 18), "H" * 10), 18: ".......HHH"}
    for table, has_ace in ((hard, False), (soft, True)):
        for total in range(4 if not has_ace else 12, 22):
            row = "".join("H" if hit_worth((total, has_ace), card) > stick_worth(total, card) else "." for card in SHOWING)
            assert row == table.get(total, "." * 10), (total, has_ace)
