"""Dead letters: records that no handler could process."""

from kinesumer.dead_letters.base import DeadLetters
from kinesumer.dead_letters.letter import DeadLetter
from kinesumer.dead_letters.targets import check_target, open_dead_letters

__all__ = ["DeadLetter", "DeadLetters", "check_target", "open_dead_letters"]
