"""The tables of a plan that say how its result decides: value, protocol, diagnosis, comparison.

They are optional as far as the file goes. What a plan of its cost and kind has to say is for `raykit.review`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from raykit.ids import Name
from raykit.plan.tables import Above0, AtLeast0, Metric, Role, Share, Table, Text
from raykit.records import Positive

OTHERWISE = "otherwise"
"""In `predicts` and `next` of a test: every hypothesis that is not named there."""


# --- [base] -------------------------------------------------------------------------------------------------

Start = Literal["use", "continue", "replay", "pilot", "fresh"]
STARTS: tuple[Start, ...] = ("use", "continue", "replay", "pilot", "fresh")
"""What can be done with weights that are there, in the order in which it is considered."""

TRAINS_FROM: frozenset[Start] = frozenset(("continue", "replay", "pilot"))
"""The starts that train on from a base: `use` trains nothing, `fresh` starts from the recipe's own weights."""

Refit = Literal["initialization", "identical-arms", "base-invalid", "uniform-exposure"]


class BaseRun(Table):
    """The existing weights that a plan weighs, and what it does with them."""

    candidate: Text = Field(description="a registered candidate, an experiment, or EXPERIMENT@UPDATE")
    start: Start = Field(description="use | continue | replay | pilot | fresh")
    keep: tuple[Literal["weights", "optimizer"], ...] = Field(
        (), description='what is carried over: ["weights"] or ["weights", "optimizer"]'
    )
    against_as_is: Text | None = Field(None, description="why the base as it is does not answer the question")
    against_continue: Text | None = Field(None, description="why continuing does not")
    against_replay: Text | None = Field(None, description="why continuing with replay does not")
    against_pilot: Text | None = Field(None, description="why a pilot does not")
    reason: Text | None = Field(None, description="why a fresh start is worth repeating the compute")
    because: Refit | None = Field(
        None,
        description="initialization | identical-arms | base-invalid | uniform-exposure: which reason for a fresh "
        "start applies",
    )
    invalid_without: Text | None = Field(None, description="what would be invalid without the fresh start")
    speculative: bool = Field(
        False, description="true | false: the expected benefit is a hope, not an estimate"
    )
    small_share: Share | None = Field(
        None, description="the share of changed rows, between 0 and 1, below which a change is small"
    )
    little_share: Share | None = Field(
        None, description="the share of repeated updates, between 0 and 1, below which little is repeated"
    )

    @property
    def reasons(self) -> Mapping[Start, str | None]:
        """What the plan says against each option."""
        return {
            "use": self.against_as_is,
            "continue": self.against_continue,
            "replay": self.against_replay,
            "pilot": self.against_pilot,
        }


# --- [value], [protocol] ------------------------------------------------------------------------------------


class Value(Table):
    """What the run is worth, where the store cannot say it. Asked at 5 USD and above, and of a restart."""

    remains: Text | None = Field(None, description="what stays uncertain after the completed run")
    changes: Text | None = Field(None, description="how the result could change the decision")
    matters: Text | None = Field(
        None, description="why the changed data are large or different enough to matter"
    )
    justifies: Text | None = Field(
        None, description="why the expected gain, with its estimate, is worth the compute and the delay"
    )
    first: Text | None = Field(
        None, description="why a subset, a shorter schedule or a paired continuation cannot answer first"
    )
    tuned: Text | None = Field(
        None, description="how settings were tuned anew for another batch size or scale, or why they hold"
    )


class Protocol(Table):
    """The conditions that the decision is about. Without this table, those of the plan's own run."""

    updates: Positive | None = Field(None, description="updates of a run at full length")
    batch: Positive | None = Field(None, description="examples of its updates")
    params: Mapping[str, Any] = Field(
        default_factory=dict, description="the recipe's params at full scale, such as { context = 2048 }"
    )
    train: tuple[Text, ...] | None = Field(None, description="its training sources", min_length=1)


# --- [diagnosis] --------------------------------------------------------------------------------------------


class Hypothesis(Table):
    """One of the explanations that compete."""

    says: Text = Field(description="what is the case if it is true")
    stop_after: Positive = Field(
        1, description="failures of a necessary condition after which it is dropped, at least 1"
    )


class DiagnosticTest(Table):
    """One cheap test that tells hypotheses apart: what each predicts, and what is done then."""

    does: Text = Field(description="what is run, and on what")
    cost_usd: AtLeast0 = Field(description="what this test alone costs, in US dollars, at least 0")
    covers: Mapping[str, Any] = Field(
        description='the inputs that it exercises: { lengths = "1..64", rows = 128 }', min_length=1
    )
    predicts: Mapping[str, Text] = Field(
        description="by hypothesis, what would be observed; `otherwise` stands for all that are not named",
        min_length=1,
    )
    next: Mapping[str, Text] = Field(
        description="by hypothesis, what is done if its observation is made; `otherwise` for all others",
        min_length=1,
    )
    note: Text | None = Field(None, description="how one observation that several hypotheses predict is read")
    override: Text | None = Field(
        None, description="why it is worth its cost though every hypothesis predicts the same"
    )

    def prediction(self, hypothesis: str) -> str | None:
        """What `hypothesis` predicts to be observed."""
        return self.predicts.get(hypothesis, self.predicts.get(OTHERWISE))

    def branch(self, hypothesis: str) -> str | None:
        """What is done if the observation of `hypothesis` is made."""
        return self.next.get(hypothesis, self.next.get(OTHERWISE))


class Diagnosis(Table):
    """Hypotheses that compete, and the tests that tell them apart."""

    hypotheses: Mapping[Name, Hypothesis] = Field(
        description='one table each: { says = "...", stop_after = 1 }', min_length=1
    )
    tests: Mapping[Name, DiagnosticTest] = Field(
        description="one table each: does, cost_usd, covers, predicts, next", min_length=1
    )


# --- [comparison] -------------------------------------------------------------------------------------------


class Comparison(Table):
    """The final comparison, bound before the run: who is compared, on what, and how a tie ends."""

    arms: Mapping[Name, Mapping[str, Any]] = Field(
        description='one table each, of what differs from [run]: { base = {}, wide = { "params.width" = 64 } }',
        min_length=2,
    )
    varies: Text = Field(description="the one setting in which the arms differ, such as params.width")
    inputs: Role = Field("development", description="the split that all arms are scored on")
    inference: Text = Field("none", description='how inference differs between the arms; "none"')
    detectable: Above0 | None = Field(
        None, description="the smallest effect that this comparison can tell from none, in the metric's units"
    )
    tie: Literal["incumbent", "cheaper"] | None = Field(
        None, description="incumbent | cheaper: who a tie goes to"
    )
    promote: Mapping[Metric, Text] = Field(
        default_factory=dict, description="thresholds of promotion by metric; each needs its own approval"
    )
