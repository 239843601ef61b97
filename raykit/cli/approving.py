"""What a person says with a launch, a search or a job: what it may come to, and why its plan was changed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from raykit.cli.options import amount_of, is_scripted, person_of, words
from raykit.errors import ApprovalError, InvalidInput

if TYPE_CHECKING:
    from raykit.fleet.site import Site
    from raykit.fleet.spending import Approving

Approve = Annotated[
    str | None,
    typer.Option("--approve", metavar="AMOUNT", help="Let this plan come to AMOUNT, as the person of --by."),
]
Deviation = Annotated[
    str | None,
    typer.Option(
        "--deviation", metavar="TEXT", help="Why the plan was changed after results were seen; kept for ever."
    ),
]
Person = Annotated[
    str | None,
    typer.Option("--by", envvar="RAYKIT_PERSON", help="The person who says so."),
]
Came = TypeVar("Came")


def approving(amount: str | None, by: str | None, scripted: bool) -> Approving | None:
    """What a person says about the money of a plan; None if nobody does.

    Raises:
        InvalidInput: it is no amount, or nobody was named.
    """
    if amount is None:
        return None
    from raykit.fleet.spending import Approving

    return Approving(
        amount=amount_of(amount, "--approve"), person=person_of(by), scripted=is_scripted(scripted)
    )


def said_of(deviation: str | None, by: str | None) -> str | None:
    """What a person says of a plan that was changed after results were seen; None if nobody does.

    Raises:
        InvalidInput: nobody was named, or nothing is said.
    """
    if deviation is None:
        return None
    why = words(deviation, field="--deviation", what="why the plan was changed after results were seen")
    return f"{why} ({person_of(by)})"


def until_approved(
    run: Callable[[Approving | None], Came], site: Site, approved: Approving | None, *, asks: bool
) -> Came:
    """What `run` comes to; where a person has to approve first and sits at this terminal, they are asked once.

    Raises:
        ApprovalError: a person has to approve, and nobody did.
        InvalidInput: what was typed is no amount, or nothing.
        RaykitError: whatever `run` raises.
    """
    try:
        return run(approved)
    except ApprovalError as error:
        typed = _ask_amount(error, site) if asks and approved is None else None
        if typed is None:
            raise
    return run(typed)


def _ask_amount(error: ApprovalError, site: Site) -> Approving | None:
    """What a person types on a terminal to approve this plan; None off a terminal, or if they do not.

    Raises:
        InvalidInput: what was typed is no amount, or nothing.
    """
    person = os.environ.get("RAYKIT_PERSON")
    if (
        not (sys.stdin.isatty() and sys.stderr.isatty())
        or site.plan.budget is None
        or error.field != "account"
    ):
        return None
    from raykit.budget.amounts import micros
    from raykit.fleet.spending import Approving

    ceiling = site.plan.budget.ceiling
    typer.echo(
        f"  {error.message}\n"
        f"  Approving covers: this plan up to {ceiling:,.2f}; no restart, no sealed set, no promotion, no deletion.",
        err=True,
    )
    person = person or typer.prompt("  Your name", err=True)
    typed = typer.prompt(
        f"  Type the amount to approve as {person} (Enter: no)", default="", show_default=False, err=True
    )
    if not typed.strip():
        return None
    amount = micros(typed.strip(), field="the amount")
    if amount <= 0:
        raise InvalidInput("nothing was approved", field="the amount", value=typed)
    return Approving(amount=amount, person=person, scripted=False)
