"""One episode as text, for people."""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from envhub.types import Trajectory


def replay_text(played: Sequence[Trajectory], tokenizer: PreTrainedTokenizerBase) -> str:
    """The longest solved episode (or the longest at all), turn by turn, decoded from its tokens."""
    solved = [t for t in played if t.success] or list(played)
    chosen = max(solved, key=lambda t: len(t.turns))
    lines = [f"{chosen.env_id}, task {chosen.task}, {chosen.stop.value}, reward {chosen.reward}"]
    for number, turn in enumerate(chosen.turns, 1):
        ids = chosen.segments[turn.segment].token_ids
        shown = tokenizer.decode(ids[slice(*turn.observation)].tolist())
        said = tokenizer.decode(ids[slice(*turn.reply)].tolist())
        lines += [f"{number:2d}  {shown}", f"    -> {said}   (reward {turn.reward:g})"]
    lines.append(f"    {chosen.final_observation}")
    return "\n".join(lines)
