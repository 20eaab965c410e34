"""The eight models of the paper's Table 1, two tasks and four architectures, as figures alone.

Whoever plans a training, or trains with something else than PyTorch, needs no more of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from privatekube_kfp.core.errors import Invalid, Reason
from privatekube_kfp.ledger.streams import Semantic

EMBEDDING_SIZE = 100
CLASSES = 11


class Task(StrEnum):
    """What is predicted: the category of a review's product, or whether its rating is good."""

    PRODUCT = "product"
    SENTIMENT = "sentiment"


class Kind(StrEnum):
    """Which architecture predicts it."""

    LINEAR = "linear"
    FF = "ff"
    LSTM = "lstm"
    BERT = "bert"


@dataclass(frozen=True)
class Architecture:
    """A row of the table: how many tokens are read, hidden sizes, and what can be trained."""

    task: Task
    kind: Kind
    length: int
    hidden: tuple[int, ...]
    parameters: int

    @property
    def outputs(self) -> int:
        """A score for each category; for sentiment a single one, positive for good."""
        return CLASSES if self.task is Task.PRODUCT else 1

    def epochs(self, semantic: Semantic) -> int:
        """How often each unit is seen, on average."""
        if self.kind is Kind.BERT:
            return 5 if semantic is Semantic.USER else 3
        return 60 if semantic is Semantic.USER else 15

    def check_categories(self, categories: Sequence[str]) -> None:
        """Refuse a list of categories that this model cannot tell apart."""
        if self.task is not Task.PRODUCT:
            return
        for category in categories:
            if not isinstance(category, str):
                raise Invalid(
                    Reason.INVALID_REQUEST,
                    f"categories are texts such as books, not {category!r}",
                )
        if not 1 < len(set(categories)) == len(categories) <= self.outputs:
            raise Invalid(
                Reason.INVALID_REQUEST,
                f"a model for products needs the list of 2 to {self.outputs} different categories"
                f" that it tells apart; {len(categories)} were given",
            )


_TABLE = (
    Architecture(Task.PRODUCT, Kind.LINEAR, 75, (), 1_111),
    Architecture(Task.PRODUCT, Kind.FF, 60, (185, 150), 48_246),
    Architecture(Task.PRODUCT, Kind.LSTM, 30, (40,), 23_171),
    # The paper does not say how many tokens BERT reads.
    Architecture(Task.PRODUCT, Kind.BERT, 50, (256,), 858_379),
    Architecture(Task.SENTIMENT, Kind.LINEAR, 50, (), 101),
    Architecture(Task.SENTIMENT, Kind.FF, 30, (150, 110), 31_871),
    Architecture(Task.SENTIMENT, Kind.LSTM, 50, (40,), 22_761),
    Architecture(Task.SENTIMENT, Kind.BERT, 50, (256,), 855_809),
)
ARCHITECTURES = {(row.task, row.kind): row for row in _TABLE}


def architecture(task: str, kind: str) -> Architecture:
    """The row of this task and kind; unknown ones are refused by name."""
    try:
        return ARCHITECTURES[Task(task), Kind(kind)]
    except ValueError:
        raise Invalid(
            Reason.INVALID_REQUEST,
            f"there is no model {kind!r} for the task {task!r}; tasks are {', '.join(Task)},"
            f" models {', '.join(Kind)}",
        ) from None
