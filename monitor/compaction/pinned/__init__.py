"""Facts that no summary may lose stand beside it word for word: the facts, and their text.

    text = compose(summary, gathered(messages, earlier), max_tokens=8_000)
    summary, facts = read_back(text)  # the inverse; `None` for any other text
    messages = recognised(messages)   # a history stored as text: which messages are the monitor's?

`pinned_facts.py` has the facts, `gather.py` collects them from messages, `fit.py` makes them
smaller, and `text.py` writes and reads the text. Failures answered: a user's request is gone after
the third summary of a summary; an output is made twice, because the first is forgotten; a quotation
passes for an instruction.
"""

from monitor.compaction.pinned.fit import LADDER as LADDER
from monitor.compaction.pinned.fit import compose as compose
from monitor.compaction.pinned.fit import fitted as fitted
from monitor.compaction.pinned.fit import shortened as shortened
from monitor.compaction.pinned.gather import gathered as gathered
from monitor.compaction.pinned.gather import with_known as with_known
from monitor.compaction.pinned.pinned_facts import PinnedFacts as PinnedFacts
from monitor.compaction.pinned.text import ACKNOWLEDGEMENT as ACKNOWLEDGEMENT
from monitor.compaction.pinned.text import CONTINUE as CONTINUE
from monitor.compaction.pinned.text import CONTINUE_WITHOUT_MEDIA as CONTINUE_WITHOUT_MEDIA
from monitor.compaction.pinned.text import FOOTER as FOOTER
from monitor.compaction.pinned.text import HEADER as HEADER
from monitor.compaction.pinned.text import acknowledgement as acknowledgement
from monitor.compaction.pinned.text import head_of_messages as head_of_messages
from monitor.compaction.pinned.text import read_back as read_back
from monitor.compaction.pinned.text import recognised as recognised
from monitor.compaction.pinned.text import text_of_user as text_of_user
