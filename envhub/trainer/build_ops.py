"""Build DeepSpeed's communication op once, at set-up: `python -m envhub.trainer.build_ops`."""

from envhub.trainer.engine import _deepspeed, start_distributed

if __name__ == "__main__":
    start_distributed()
    _deepspeed().init_distributed(verbose=False)
