"""Messages of TensorFlow and protobuf, recognised in any text that holds them."""

from __future__ import annotations

from rekord.health.tf_known import Explanation
from rekord.health.tf_messages_files import FILE_MESSAGES
from rekord.health.tf_messages_parse import PARSE_MESSAGES
from rekord.health.tf_messages_write import WRITE_MESSAGES

MESSAGES = (*PARSE_MESSAGES, *FILE_MESSAGES, *WRITE_MESSAGES)

_LONGEST_TEXT = 30_000


def explained(text: str) -> Explanation | None:
    """What the first message that is known says; None where there is none.

    The text may be a whole traceback; of a very long one the end counts, where the message stands.
    """
    text = text[-_LONGEST_TEXT:]
    for known in MESSAGES:
        explanation = known.explain(text)
        if explanation is not None:
            return explanation
    return None
