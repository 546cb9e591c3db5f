"""Foreign environments, hosted unchanged: one file for each kind.

An adapter is a function from what follows the colon of an id ("gymnasium:CartPole-v1") to an `EnvSpec`, named by an entry
point of the group `envhub.adapters`; other packages may name more.
"""
