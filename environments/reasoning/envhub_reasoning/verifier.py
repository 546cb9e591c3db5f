"""Whether two answers are the same mathematics, as math-verify sees it, in a process of its own.

Parsing what a policy wrote can take for ever, and no thread can be stopped; a process can. One serves all environments of
this process; an answer that takes over `DEADLINE_S` is not equal, and the process is started anew.
"""

import atexit
import json
import logging
import selectors
import subprocess
import sys
import threading

DEADLINE_S = 10.0
LONGEST = 2000


class Verifier:
    """Asks a child process, one question at a time."""

    def __init__(self) -> None:
        """The child is started by the first question."""
        self._lock = threading.Lock()
        self._child: subprocess.Popen[str] | None = None

    def equal(self, gold: str, answer: str) -> bool:
        """Whether `answer` means the same as `gold`; both may be LaTeX or plain. Only the first 2000 characters count."""
        if not answer.strip():
            return False
        with self._lock:
            for _ in range(2):  # a child that died since the last question gets one successor
                told = self._ask(json.dumps([gold[:LONGEST], answer[:LONGEST]]))
                if told is not None:
                    return told
        return False

    def _ask(self, question: str) -> bool | None:
        """The child's answer; None if it died at once."""
        if self._child is None or self._child.poll() is not None:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "envhub_reasoning.verifier"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        try:
            self._child.stdin.write(question + "\n")
            self._child.stdin.flush()
        except OSError:
            self.close()
            return None
        with selectors.DefaultSelector() as ready:
            ready.register(self._child.stdout, selectors.EVENT_READ)
            answered = bool(ready.select(DEADLINE_S))
        line = self._child.stdout.readline() if answered else ""
        if not line:
            self.close()
            return False
        return line.strip() == "true"

    def close(self) -> None:
        """End the child. Safe to call twice."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            for stream in (self._child.stdin, self._child.stdout):
                if stream is not None:
                    stream.close()
            self._child = None


VERIFIER = Verifier()
atexit.register(VERIFIER.close)


def _serve() -> None:
    from math_verify import parse, verify  # half a second, which only the child pays

    logging.disable()
    for line in sys.stdin:
        gold, answer = json.loads(line)
        try:
            read = parse(answer if "\\boxed" in answer or "$" in answer else f"${answer}$", parsing_timeout=4)
            same = verify(parse(f"${gold.strip('$')}$", parsing_timeout=4), read, timeout_seconds=4)
        except Exception:  # a text that breaks the parser is no answer
            same = False
        sys.stdout.write("true\n" if same else "false\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve()
