"""Single-turn reasoning questions, generated and scored by reasoning-gym."""
