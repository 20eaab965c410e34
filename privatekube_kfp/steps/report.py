"""Claims, what was ingested, and statistics, as pages for the Kubeflow UI.

Whatever is called left says of what: of the claim (granted, and neither spent nor given back), or
of the block (spent by nobody, and held by nobody).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import isfinite
from typing import Any

from privatekube_kfp.core.budget import INFINITE, Budget
from privatekube_kfp.core.claim import Claim, Kind, Phase, Request, Response
from privatekube_kfp.core.errors import PrivateKubeError
from privatekube_kfp.core.per_block import PerBlock
from privatekube_kfp.ledger.ledger import BlockRecord, StreamRecord
from privatekube_kfp.steps import pages
from privatekube_kfp.steps.pages import Html, Row, Segment

UNITS = {
    "event": "each row",
    "user": "each user",
    "user-time": "what each user does in a period",
}
_MOST_CLAIMS = 10
_SPENT, _HELD, _BACK, _OTHERS, _FREE = (
    *(pages.BAD, pages.HELD, "#b9d8ea", pages.OTHERS, pages.LIGHT),
)
_BLOCK_LEGEND = {
    "spent by this run": _SPENT,
    "held by this run": _HELD,
    "spent or held by others": _OTHERS,
    "left of the block": _FREE,
}
_CLAIM_LEGEND = {"spent": _SPENT, "given back": _BACK, "left of the claim": _HELD}


@dataclass(frozen=True)
class StreamFacts:
    """What reports need to know of a stream; `blocks` lacks those that could not be read."""

    name: str
    semantic: str
    epsilon: str
    delta: str
    capacity: Budget
    blocks: Mapping[str, BlockRecord] = field(default_factory=dict)

    @staticmethod
    def of(record: StreamRecord, blocks: Iterable[BlockRecord] = ()) -> StreamFacts:
        spec = record.spec
        named = {each.block.name: each for each in blocks}
        return StreamFacts(
            spec.name, spec.semantic.value, spec.epsilon, spec.delta, record.capacity, named
        )

    def label_for(self, granted: Budget) -> str:
        """The component by which to show a budget: epsilon, or the order that costs least.

        Under Renyi accounting a block has room as long as one order has. So of a grant that order
        counts at which it is the smallest part of the capacity.
        """
        accounting = self.capacity.accounting
        if not accounting.is_renyi:
            return accounting.labels[0]
        usable = [
            (Fraction(amount, whole), label)
            for label, amount, whole in zip(
                accounting.labels, granted.amounts, self.capacity.amounts, strict=True
            )
            if whole > 0 and amount < INFINITE
        ]
        return min(usable)[1] if usable else accounting.labels[-1]


# Claims


def report_on_allocation(claim: Claim, stream: StreamFacts | None) -> str:
    """What a claim was granted, and what that leaves of its blocks."""
    return pages.page("Budget allocated", *claim_parts(claim, stream), *_blocks_of(claim, stream))


def report_on_spending(claim: Claim, stream: StreamFacts | None) -> str:
    """What a claim has spent so far, and what is left of it and of its blocks."""
    return pages.page("Budget spent", *claim_parts(claim, stream), *_blocks_of(claim, stream))


def report_on_failure(
    title: str, error: PrivateKubeError, claim: Claim | None, stream: StreamFacts | None
) -> str:
    """Why a claim was denied or could not be used, and what is left of the blocks it asked for."""
    sentence = error.message
    if claim is not None:
        sentence = sentence.removeprefix(f"claim {claim.name}: ")
    parts = [pages.state(str(error.reason), good=False), pages.paragraph(sentence)]
    if claim is not None:
        parts += claim_parts(claim, stream)
        parts += _blocks_of(claim, stream)
    return pages.page(title, *parts)


def final_report(run: str, claims: Sequence[Claim], streams: Mapping[str, StreamFacts]) -> str:
    """What a run's claims were granted, spent and gave back, and what is left of each block."""
    denied = sum(claim.phase is Phase.DENIED for claim in claims)
    line = _in_one_line(claims, denied, streams)
    parts = [
        pages.state(line, good=bool(claims) and not denied),
        pages.paragraph(f"run {run}", quiet=True),
    ]
    for claim in claims[:_MOST_CLAIMS]:
        refused = _refused(claim)
        if refused is not None:
            parts.append(pages.paragraph(f"{refused.reason}: {refused.message}"))
        parts += claim_parts(claim, streams.get(claim.stream))
    if len(claims) > _MOST_CLAIMS:
        parts.append(pages.paragraph(f"and {len(claims) - _MOST_CLAIMS:,} claims more"))
    for name, stream in streams.items():
        of_stream = [claim for claim in claims if claim.stream == name]
        parts += _blocks(of_stream, stream)
    return pages.page("Privacy budget of this run", *parts)


def final_metrics(
    claims: Sequence[Claim], streams: Mapping[str, StreamFacts]
) -> dict[str, float | int]:
    """The same as numbers that Kubeflow compares between runs.

    Amounts are per block, the most of any; under Renyi accounting at the order that costs least,
    which is told too. Of several claims each has numbers of its own.
    """
    said: dict[str, float | int] = {
        "claims": len(claims),
        "denied": sum(claim.phase is Phase.DENIED for claim in claims),
    }
    if len(claims) > _MOST_CLAIMS:
        return said
    for claim in claims:
        end = "" if len(claims) == 1 else f".{claim.name.rpartition('.')[2]}"
        stream = streams.get(claim.stream)
        if stream is not None:
            said |= {f"{name}{end}": value for name, value in _numbers(claim, stream).items()}
    return {name: value for name, value in said.items() if isfinite(value)}


def _numbers(claim: Claim, stream: StreamFacts) -> dict[str, float | int]:
    totals = _totals(claim)
    asked = _asked(claim)
    label = _label_of(claim, stream)
    whole = _float(stream.capacity, label)
    numbers: dict[str, float | int] = {"blocks": len(claim.bound())}
    if asked is not None:
        numbers["epsilon_asked"] = _float(asked.price(), label)
    for name, total in zip(("granted", "spent", "given_back"), totals, strict=True):
        amount = _float(_most_of(total, stream, label), label)
        numbers[f"epsilon_{name}"] = amount
        if whole > 0:
            numbers[f"percent_of_block_{name}"] = round(100 * amount / whole, 6)
        if not stream.capacity.accounting.is_renyi:
            numbers[f"delta_{name}"] = _float(_most_of(total, stream, "delta"), "delta")
    if not numbers.get("delta_granted"):
        numbers = {name: n for name, n in numbers.items() if not name.startswith("delta_")}
    if stream.capacity.accounting.is_renyi:
        numbers["renyi_order"] = float(label)
    left = [
        _float(_left(record), label)
        for name in claim.bound()
        if (record := stream.blocks.get(name)) is not None
    ]
    if left:
        numbers["epsilon_left_of_block"] = max(0.0, min(left))
    return numbers


def _in_one_line(claims: Sequence[Claim], denied: int, streams: Mapping[str, StreamFacts]) -> str:
    if not claims:
        return "This run made no claim"
    if len(claims) > 1:
        return f"{len(claims)} claims" + (f", {denied} denied" if denied else "")
    (claim,) = claims
    stream, (granted, spent, _) = streams.get(claim.stream), _totals(claim)
    if stream is None or not granted.groups:
        refused = _refused(claim)
        return str(claim.phase) if refused is None else f"{claim.phase}: {refused.reason}"
    label = stream.label_for(granted.groups[0][0])
    shown = [_shown(_most_of(total, stream, label), label) for total in (spent, granted)]
    return f"Epsilon {shown[0]} spent of {shown[1]} granted"


def _refused(claim: Claim) -> Response | None:
    """The last request that was denied."""
    answers = [claim.responses.get(request.id) for request in claim.requests]
    return next((a for a in reversed(answers) if a is not None and a.denied), None)


def claim_parts(claim: Claim, stream: StreamFacts | None) -> list[Html]:
    """What one claim was granted, spent and gave back: numbers, a bar, and the details."""
    bound = claim.bound()
    parts = [
        pages.paragraph(
            f"claim {claim.name}: {claim.phase}, on {blocks_in_words(len(bound))} of stream"
            f" {claim.stream}",
            quiet=True,
        )
    ]
    totals = _totals(claim)
    if stream is None:
        said = {name: _brief(total) for name, total in zip(_COLUMNS, totals, strict=True)}
        return [*parts, pages.facts(said), *_history(claim)]
    label, asked = _label_of(claim, stream), _asked(claim)
    if totals[0].groups:
        parts += [_what(stream, label), *_granted(totals, stream, label)]
    elif asked is not None:
        said = {"asked for": _shown(asked.price(), label), "granted": "0"}
        parts += [_what(stream, label), pages.numbers(said)]
    return [*parts, *_history(claim), *_all_components(totals, stream)]


_COLUMNS = ("granted", "spent", "given back")


def _what(stream: StreamFacts, label: str) -> Html:
    """What the numbers of a claim are."""
    order = f" at order {label}" if stream.capacity.accounting.is_renyi else ""
    return pages.heading(f"Epsilon{order} of the claim, on each block")


def _granted(totals: Sequence[PerBlock], stream: StreamFacts, label: str) -> list[Html]:
    """Numbers and a bar for each different grant; mostly there is one."""
    parts: list[Html] = []
    groups = totals[0].groups
    spent, back = (dict(total.items()) for total in totals[1:])
    zero = stream.capacity.accounting.zero()
    rows = []
    for granted, names in groups[: pages.MOST_ROWS]:
        used, returned = spent.get(names[0], zero), back.get(names[0], zero)
        left = _left_of_claim(granted, used, returned)
        numbers = {
            "granted": _shown(granted, label),
            "spent": _shown(used, label),
            "given back": _shown(returned, label),
            "left of the claim": _shown(left, label),
        }
        if len(groups) == 1:
            parts.append(pages.numbers(numbers))
        whole = granted.amounts[granted.accounting.labels.index(label)]
        segments = [
            Segment(_part(budget, whole, label), colour, name)
            for (name, colour), budget in zip(
                _CLAIM_LEGEND.items(), (used, returned, left), strict=True
            )
        ]
        rows.append(
            Row(
                blocks_in_words(len(names)),
                f"{numbers['spent']} spent of {numbers['granted']} granted",
                segments,
            )
        )
    parts.append(pages.stacked_bars(rows, _CLAIM_LEGEND))
    if len(groups) > len(rows):
        others = sum(len(names) for _, names in groups[len(rows) :])
        parts.append(pages.paragraph(f"and {blocks_in_words(others, 'more ')}", quiet=True))
    return parts


def _history(claim: Claim) -> list[Html]:
    """What was asked of the ledger, and its answers."""
    rows = []
    for request in claim.requests[: pages.MOST_ROWS]:
        answer = claim.responses.get(request.id)
        said = "waits" if answer is None else f"{answer.reason}: {answer.message}"
        rows.append((request.id, said))
    if len(claim.requests) > len(rows):
        rows.append(("", f"and {len(claim.requests) - len(rows)} requests more"))
    return [pages.fold("Requests and answers", pages.table(("request", "answer"), rows))]


def _all_components(totals: Sequence[PerBlock], stream: StreamFacts) -> list[Html]:
    """Each order or, under Basic accounting, epsilon and delta, exactly."""
    if not totals[0].groups:
        return []
    granted, names = totals[0].groups[0]
    zero = granted.accounting.zero()
    used, returned = (dict(total.items()).get(names[0], zero) for total in totals[1:])
    left = _left_of_claim(granted, used, returned)
    columns = [budget.to_json() for budget in (granted, used, returned, left)]
    renyi = granted.accounting.is_renyi
    rows = [
        (f"order {label}" if renyi else label, *(_exact(column[label]) for column in columns))
        for label in granted.accounting.labels
    ]
    summary = "All orders" if renyi else "Epsilon and delta, exactly"
    guarantee = (
        f"stream {stream.name} guarantees epsilon {stream.epsilon}, delta {stream.delta};"
        f" protected is {UNITS.get(stream.semantic, stream.semantic)}"
    )
    heads = ("per block", *_COLUMNS, "left of the claim")
    return [
        pages.fold(
            summary, pages.table(heads, rows, right=4), pages.paragraph(guarantee, quiet=True)
        )
    ]


# Blocks


def _blocks_of(claim: Claim, stream: StreamFacts | None) -> list[Html]:
    return [] if stream is None else _blocks([claim], stream)


@dataclass(frozen=True)
class _BlockView:
    """One block in units of the shown component: what this run and others took, what is left."""

    left: int
    spent: int
    held: int
    others: int
    asked: int
    capacity: int


def _blocks(claims: Sequence[Claim], stream: StreamFacts) -> list[Html]:
    """What is left of each block that the claims are bound to, before and after this run."""
    bound = list(dict.fromkeys(name for claim in claims for name in claim.bound()))
    known = [name for name in bound if name in stream.blocks]
    if not known:
        return []
    granted = [claim for claim in claims if claim.total(Kind.ALLOCATE).groups]
    label = _label_of((granted or claims)[0], stream)
    asking = [r for claim in claims if (r := _asked(claim)) is not None]
    views = _views(claims, stream, known, label, () if granted else asking)
    groups: dict[_BlockView, list[str]] = {}
    for name, view in views.items():
        groups.setdefault(view, []).append(name)
    ordered = sorted(groups.items(), key=lambda group: group[0].left)
    rows = [_block_row(view, names, stream, label) for view, names in ordered[: pages.MOST_ROWS]]
    order = f" at order {label}" if stream.capacity.accounting.is_renyi else ""
    before = "" if not granted else ", before and after this run"
    parts = [
        pages.heading(f"Epsilon{order} left of each block{before}"),
        pages.stacked_bars(rows, _BLOCK_LEGEND),
    ]
    rest = ordered[pages.MOST_ROWS :]
    if rest:
        least = _in_units(rest[0][0].left, stream, label)
        count = blocks_in_words(sum(len(names) for _, names in rest), "more ")
        parts.append(pages.paragraph(f"and {count}, at least {least} left of each"))
    note = "As the ledger had it when this page was written; other runs may change it."
    return [*parts, pages.paragraph(note, quiet=True)]


def _views(
    claims: Sequence[Claim],
    stream: StreamFacts,
    names: Iterable[str],
    label: str,
    asking: Iterable[Request],
) -> dict[str, _BlockView]:
    """A claim's own record is exact; that of a block in a cluster may lag a moment behind it."""
    at = stream.capacity.accounting.labels.index(label)

    def by_block(kind: Kind) -> dict[str, int]:
        units: dict[str, int] = {}
        for claim in claims:
            for name, budget in claim.total(kind).items():
                units[name] = units.get(name, 0) + budget.amounts[at]
        return units

    granted, spent, back = (by_block(kind) for kind in (Kind.ALLOCATE, Kind.CONSUME, Kind.RELEASE))
    asked = {name: r.price().amounts[at] for r in asking for name in r.blocks}
    views = {}
    for name in names:
        budget = stream.blocks[name].budget
        taken = budget.allocated.amounts[at] + budget.consumed.amounts[at]
        mine = granted.get(name, 0) - back.get(name, 0)
        others = max(0, taken - mine)
        views[name] = _BlockView(
            left=max(0, budget.capacity.amounts[at] - others - mine),
            spent=spent.get(name, 0),
            held=mine - spent.get(name, 0),
            others=others,
            asked=asked.get(name, 0),
            capacity=budget.capacity.amounts[at],
        )
    return views


def _block_row(view: _BlockView, names: Sequence[str], stream: StreamFacts, label: str) -> Row:
    before, left, whole, asked = (
        _in_units(units, stream, label)
        for units in (view.left + view.spent + view.held, view.left, view.capacity, view.asked)
    )
    if view.asked:
        note = f"{asked} asked, {left} left of {whole}"
    elif before == left:
        note = f"{left} left of {whole}"
    else:
        note = f"{before} → {left} left of {whole}"
    name = names[0] if len(names) == 1 else f"{len(names):,} blocks, such as {names[0]}"
    shares = (view.spent, view.held, view.others, view.left)
    whole_units = view.capacity or 1
    return Row(
        name,
        note,
        [
            Segment(units / whole_units, colour, text)
            for units, (text, colour) in zip(shares, _BLOCK_LEGEND.items(), strict=True)
        ],
    )


# What was ingested


def report_on_ingest(public: Mapping[str, Any], blocks: Sequence[str]) -> str:
    """What anybody may know of an ingest, as Markdown; it is handed nothing else."""
    lines = [
        f"# Stream {public['stream']}",
        "",
        f"**{blocks_in_words(len(blocks), 'new ')}**. All data are there until {public['until']}.",
    ]
    if "users" in public:
        users = public["users"]
        lines += [
            "",
            f"About {users['estimate']} users: from {users['atLeast']} to {users['atMost']}, with"
            f" confidence {users['confidence']}. The count is differentially private.",
        ]
    if blocks:
        more = len(blocks) - pages.MOST_ROWS
        lines += ["", "New blocks:", "", *(f"* `{name}`" for name in blocks[: pages.MOST_ROWS])]
        lines += [f"* and {more} more"] if more > 0 else []
    return "\n".join(lines) + "\n"


# Statistics


def report_on_statistic(found: Mapping[str, Any], granted: Budget) -> str:
    """A statistic with its error, its noise and its price."""
    value, error = found["value"], found["error95"]
    unit, bounds = found["unit"], found["bounds"]
    shown = _error_in_words(error)
    if isinstance(value, Mapping):
        alone = _error_in_words(found.get("error95Each", error))
        parts = [
            pages.counts(value, error),
            pages.paragraph(
                f"Error by noise: {shown} on all {len(value)} values at once, in 95 of 100 runs"
                f" ({alone} on each one alone). The lines on the bars are those of all at once."
            ),
        ]
    else:
        parts = [
            pages.state(pages.number_in_words(_rounded(value)), good=True),
            pages.paragraph(f"Error by noise: {shown}, in 95 of 100 runs."),
        ]
    parts.append(pages.paragraph("What bounds leave out is not in the error.", quiet=True))
    cost = {
        "spent": granted.brief(),
        "of claim": str(found["claim"]),
        "step of its plan": str(found["step"]),
        "noise": str(found["noise"]),
        "protected": f"{UNITS[unit['semantic']]}; rows of one that count: {unit['rows']}",
        **{name: str(bounds[name]) for name in ("low", "high") if name in bounds},
    }
    noise = [
        (str(p["name"]), f"{p['sensitivity']}", pages.number_in_words(p["scale"]))
        for p in found["parts"]
    ]
    parts += [
        pages.heading("What it cost"),
        pages.facts(cost),
        pages.heading("Noise"),
        pages.table(("part", "sensitivity", "scale of noise"), noise, right=2),
    ]
    return pages.page(str(found["statistic"]).replace("_", " ").capitalize(), *parts)


def _error_in_words(error: float | None) -> str:
    """In three digits, unless it is whole."""
    if error is None or not isfinite(error):
        return pages.number_in_words(error)
    whole = float(error).is_integer()
    return f"± {pages.number_in_words(error if whole else float(f'{error:.3g}'))}"


def blocks_in_words(count: int, kind: str = "") -> str:
    return f"{count} {kind}block" if count == 1 else f"{count} {kind}blocks"


# Amounts


def _totals(claim: Claim) -> tuple[PerBlock, PerBlock, PerBlock]:
    """Granted, spent and given back."""
    return claim.total(Kind.ALLOCATE), claim.total(Kind.CONSUME), claim.total(Kind.RELEASE)


def _asked(claim: Claim) -> Request | None:
    """The last allocate that was asked for, if its price is known."""
    asked = [r for r in claim.requests if r.kind is Kind.ALLOCATE and r.steps]
    return asked[-1] if asked else None


def _label_of(claim: Claim, stream: StreamFacts) -> str:
    """The component by which to show a claim: of what it was granted, or asked for."""
    groups, asked = claim.total(Kind.ALLOCATE).groups, _asked(claim)
    if groups:
        return stream.label_for(groups[0][0])
    return stream.label_for(stream.capacity if asked is None else asked.price())


def _left_of_claim(granted: Budget, spent: Budget, returned: Budget) -> Budget:
    """What is granted without limit at an order stays so, unless all of it is spent or returned."""
    left = granted - spent - returned
    return granted.accounting.budget(
        INFINITE if had == INFINITE and left_over else left_over
        for had, left_over in zip(granted.amounts, left.amounts, strict=True)
    )


def _left(record: BlockRecord) -> Budget:
    """Of a block: spent by nobody, and held by nobody."""
    return record.budget.capacity - record.budget.consumed - record.budget.allocated


def _most_of(total: PerBlock, stream: StreamFacts, label: str) -> Budget:
    """On the block that has most of it."""
    at = stream.capacity.accounting.labels.index(label)
    budgets = [budget for budget, _ in total.groups]
    zero = stream.capacity.accounting.zero()
    return max(budgets, key=lambda budget: budget.amounts[at], default=zero)


def _brief(total: PerBlock) -> str:
    budgets = {budget for budget, _ in total.groups}
    if not budgets:
        return "nothing"
    return budgets.pop().brief() if len(budgets) == 1 else "different amounts by block"


def _part(budget: Budget, whole: int, label: str) -> float:
    units = budget.amounts[budget.accounting.labels.index(label)]
    return units / whole if whole else 0.0


def _float(budget: Budget, label: str) -> float:
    """For metrics, which are floats; infinite where the amount is."""
    return float(budget.to_json()[label])


def _in_units(units: int, stream: StreamFacts, label: str) -> str:
    accounting = stream.capacity.accounting
    amounts = [0] * len(accounting.labels)
    amounts[accounting.labels.index(label)] = units
    return _shown(accounting.budget(amounts), label)


def _shown(budget: Budget, label: str) -> str:
    """An amount in at most six digits; the exact one is in the table of all."""
    exact = _exact(budget.to_json()[label])
    if len(exact) <= 8:
        return exact
    return f"{float(exact):.6g}"


def _exact(amount: str) -> str:
    return "∞" if amount == "inf" else amount


def _rounded(value: float) -> float:
    """Six digits; whole numbers as they are."""
    return value if isinstance(value, int) or not isfinite(value) else float(f"{value:.6g}")
