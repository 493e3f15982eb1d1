"""Sessions: conversations that survive a crash and a power cut, and can be read later."""

from monitor.sessions.closed_runs import (
    SUPERSEDED,
    ApprovalState,
    Changes,
    Committed,
    RunRecord,
    RunStage,
    SessionStore,
    StoredEvent,
    TurnChunks,
    close_run,
)
from monitor.sessions.copies.json_lines import Trimmed, copy_session, exported, fork, imported, remove, trim
from monitor.sessions.copies.retained import Retained, StoredSession, retain
from monitor.sessions.copies.salvage import Salvaged, salvage
from monitor.sessions.mail.mailbox import AnswerLetter, Letter, Mailbox
from monitor.sessions.mail.waiting import Passage, WaitingRun, answer, deliver, found_in, inbox, tell, waiting_calls
from monitor.sessions.nodes import (
    FOLLOW,
    Compacted,
    ContextEdit,
    Draft,
    Node,
    NodeKind,
    branch_note,
    compacted_of,
    compaction,
    context_edit,
    edit_of,
    marker,
    message,
    said_of,
)
from monitor.sessions.postgres.postgres_reader import PostgresReader
from monitor.sessions.postgres.postgres_session import PostgresSession
from monitor.sessions.reader import ENDING, SessionFile, SessionReader, default_folder, sessions_in
from monitor.sessions.sqlite_session import InMemorySession, SQLiteSession
from monitor.sessions.tables.marked_folder import Blobs
from monitor.sessions.tree import ACTIVE, Context, Entry, TreeProblem

__all__ = [
    "ACTIVE",
    "ENDING",
    "FOLLOW",
    "SUPERSEDED",
    "AnswerLetter",
    "ApprovalState",
    "Blobs",
    "Changes",
    "Committed",
    "Compacted",
    "Context",
    "ContextEdit",
    "Draft",
    "Entry",
    "InMemorySession",
    "Letter",
    "Mailbox",
    "Node",
    "NodeKind",
    "Passage",
    "PostgresReader",
    "PostgresSession",
    "Retained",
    "RunRecord",
    "RunStage",
    "SQLiteSession",
    "Salvaged",
    "SessionFile",
    "SessionReader",
    "SessionStore",
    "StoredEvent",
    "StoredSession",
    "TreeProblem",
    "Trimmed",
    "TurnChunks",
    "WaitingRun",
    "answer",
    "branch_note",
    "close_run",
    "compacted_of",
    "compaction",
    "context_edit",
    "copy_session",
    "default_folder",
    "deliver",
    "edit_of",
    "exported",
    "fork",
    "found_in",
    "imported",
    "inbox",
    "marker",
    "message",
    "remove",
    "retain",
    "said_of",
    "salvage",
    "sessions_in",
    "tell",
    "trim",
    "waiting_calls",
]
__dir__ = __all__.copy
