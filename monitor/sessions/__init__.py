"""Sessions: conversations that survive a crash and a power cut, and can be read later."""

from monitor.sessions.beside.late_results import deliver as deliver
from monitor.sessions.beside.late_results import waiting_calls as waiting_calls
from monitor.sessions.beside.mailbox import AnswerLetter as AnswerLetter
from monitor.sessions.beside.mailbox import Letter as Letter
from monitor.sessions.beside.mailbox import Mailbox as Mailbox
from monitor.sessions.beside.telling import tell as tell
from monitor.sessions.beside.waiting import Passage as Passage
from monitor.sessions.beside.waiting import WaitingRun as WaitingRun
from monitor.sessions.beside.waiting import answer as answer
from monitor.sessions.beside.waiting import found_in as found_in
from monitor.sessions.beside.waiting import inbox as inbox
from monitor.sessions.closed_runs import SUPERSEDED as SUPERSEDED
from monitor.sessions.closed_runs import close_run as close_run
from monitor.sessions.copies.copied import copy_session as copy_session
from monitor.sessions.copies.copied import fork as fork
from monitor.sessions.copies.copied import remove as remove
from monitor.sessions.copies.json_lines import exported as exported
from monitor.sessions.copies.json_lines import imported as imported
from monitor.sessions.copies.retained import Retained as Retained
from monitor.sessions.copies.retained import StoredSession as StoredSession
from monitor.sessions.copies.retained import retain as retain
from monitor.sessions.copies.salvage import Salvaged as Salvaged
from monitor.sessions.copies.salvage import salvage as salvage
from monitor.sessions.copies.trimmed import Trimmed as Trimmed
from monitor.sessions.copies.trimmed import trim as trim
from monitor.sessions.files import ENDING as ENDING
from monitor.sessions.files import SessionFile as SessionFile
from monitor.sessions.files import default_folder as default_folder
from monitor.sessions.files import sessions_in as sessions_in
from monitor.sessions.in_memory import InMemorySession as InMemorySession
from monitor.sessions.nodes import FOLLOW as FOLLOW
from monitor.sessions.nodes import Compacted as Compacted
from monitor.sessions.nodes import ContextEdit as ContextEdit
from monitor.sessions.nodes import Draft as Draft
from monitor.sessions.nodes import Node as Node
from monitor.sessions.nodes import NodeKind as NodeKind
from monitor.sessions.nodes import branch_note as branch_note
from monitor.sessions.nodes import compacted_of as compacted_of
from monitor.sessions.nodes import compaction as compaction
from monitor.sessions.nodes import context_edit as context_edit
from monitor.sessions.nodes import edit_of as edit_of
from monitor.sessions.nodes import marker as marker
from monitor.sessions.nodes import message as message
from monitor.sessions.nodes import said_of as said_of
from monitor.sessions.postgres.postgres_reader import PostgresReader as PostgresReader
from monitor.sessions.postgres.postgres_session import PostgresSession as PostgresSession
from monitor.sessions.reader import SessionReader as SessionReader
from monitor.sessions.run_records import ApprovalState as ApprovalState
from monitor.sessions.run_records import Changes as Changes
from monitor.sessions.run_records import Committed as Committed
from monitor.sessions.run_records import RunRecord as RunRecord
from monitor.sessions.run_records import RunStage as RunStage
from monitor.sessions.run_records import StoredEvent as StoredEvent
from monitor.sessions.run_records import TurnChunks as TurnChunks
from monitor.sessions.session_store import SessionStore as SessionStore
from monitor.sessions.sqlite_session import SQLiteSession as SQLiteSession
from monitor.sessions.tables.blobs import Blobs as Blobs
from monitor.sessions.tree import ACTIVE as ACTIVE
from monitor.sessions.tree import Context as Context
from monitor.sessions.tree import Entry as Entry
from monitor.sessions.tree import TreeProblem as TreeProblem

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
