"""What the library raises, and the reasons it gives.

A refusal is data: a reason that a program can switch on and a sentence that a person can act
on. Reasons say what would unblock, are part of the wire contract and are never reworded.
"""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Why a request waits, was refused, or cannot even be read."""

    # Waiting: the request may still be met.
    WAITING_FOR_UNLOCK = "WaitingForUnlock"
    WAITING_FOR_RELEASE = "WaitingForRelease"
    WAITING_FOR_ALLOCATE = "WaitingForAllocate"
    WAITING_FOR_SCHEDULER = "WaitingForScheduler"

    # Denied: answered once and for good, and kept with the claim.
    EXCEEDS_CAPACITY = "ExceedsCapacity"
    EXHAUSTED = "Exhausted"
    TIMED_OUT = "TimedOut"
    BLOCK_RETIRED = "BlockRetired"
    WITHDRAWN = "Withdrawn"
    NOT_ALLOCATED = "NotAllocated"
    EXCEEDS_ALLOCATION = "ExceedsAllocation"
    NOTHING_LEFT = "NothingLeft"
    ALREADY_CONSUMED = "AlreadyConsumed"
    ALREADY_RELEASED = "AlreadyReleased"
    UNKNOWN_STEP = "UnknownStep"

    # Done.
    ALLOCATED = "Allocated"
    CONSUMED = "Consumed"
    RELEASED = "Released"

    # Not even recorded: the request makes no sense for this ledger.
    NO_MATCHING_BLOCKS = "NoMatchingBlocks"
    INVALID_BUDGET = "InvalidBudget"
    INVALID_REQUEST = "InvalidRequest"
    INVALID_STREAM = "InvalidStream"
    INVALID_PLAN = "InvalidPlan"
    CANNOT_PRICE = "CannotPrice"
    UNSOUND_CAPACITY = "UnsoundCapacity"
    UNKNOWN_STREAM = "UnknownStream"
    UNKNOWN_BLOCK = "UnknownBlock"
    UNKNOWN_CLAIM = "UnknownClaim"
    UNKNOWN_REQUEST = "UnknownRequest"
    ALREADY_EXISTS = "AlreadyExists"
    ID_REUSED = "IdReused"
    IN_USE = "InUse"
    CLOCK_WENT_BACK = "ClockWentBack"

    # The ledger itself.
    LEDGER_MISSING = "LedgerMissing"
    LEDGER_UNREADABLE = "LedgerUnreadable"
    LEDGER_NEWER = "LedgerNewer"
    LEDGER_READ_ONLY = "LedgerReadOnly"
    LEDGER_FULL = "LedgerFull"
    LEDGER_BUSY = "LedgerBusy"
    LEDGER_INCONSISTENT = "LedgerInconsistent"

    # The cluster.
    CLUSTER_UNREACHABLE = "ClusterUnreachable"
    CLUSTER_REFUSED = "ClusterRefused"
    UNKNOWN_OBJECT = "UnknownObject"

    # The data, and what leaves.
    DATA_UNREADABLE = "DataUnreadable"
    DATA_UNWRITABLE = "DataUnwritable"
    WRONG_COLUMNS = "WrongColumns"
    TOO_MANY_BAD_ROWS = "TooManyBadRows"
    NOT_CONSUMED = "NotConsumed"
    ALREADY_PUBLISHED = "AlreadyPublished"

    # What the scheduler says of an object that it cannot follow.
    SPEC_CHANGED = "SpecChanged"
    REQUEST_CHANGED = "RequestChanged"
    UNREADABLE = "Unreadable"
    DELETION_REFUSED = "DeletionRefused"


class PrivateKubeError(Exception):
    """Base of everything the library raises on purpose: a reason and a sentence."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class Invalid(PrivateKubeError):
    """The input cannot be accepted as it stands; nothing was recorded."""


class LedgerError(PrivateKubeError):
    """The ledger cannot be read or written; nothing of the call took effect."""
