"""Dead letters: records that no handler could process."""

from kinesumer.handlers.dead_letters.letter import DeadLetter, DeadLetters
from kinesumer.handlers.dead_letters.targets import check_target, open_dead_letters

__all__ = ["DeadLetter", "DeadLetters", "check_target", "open_dead_letters"]
