"""The conformance and honesty kit: what `envhub check` tries on an environment."""
