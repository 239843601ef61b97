"""Settings belong together: tuned anew for another batch size or scale, or a word on why not; rates with recipes.

# covers TUNE-08, TUNE-09, TUNE-15, TUNE-16
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from makereview import digits, planned, refresh, search

from raykit.errors import PlanError
from raykit.plan import load_plan
from raykit.review import Evidence, review

PLANS = Path(__file__).parents[2] / "jobs" / "digits"


def told(evidence: Evidence, item: str) -> list[tuple[str, str]]:
    return [(each.field, each.problem) for each in review(evidence).findings if each.item == item]


def other_batch() -> Evidence:
    """The team's continuation, at another batch size than its base was trained with."""
    return replace(refresh(), settings=("run.batch: 256 -> 512", "run.params.warmup: 800 -> 200"))


# --- another batch size, another scale --------------------------------------------------------------------------


def test_another_batch_size_wants_a_word_on_what_goes_with_it() -> None:
    # covers TUNE-08
    assert told(refresh(), "TUNE-08") == []
    ((field, problem),) = told(other_batch(), "TUNE-08")
    assert field == "value.tuned"
    assert "run.batch: 256 -> 512" in problem and "warmup" not in problem
    said = planned(
        other_batch(), {"value.tuned": "lr grows with the root of the batch: 6e-5 was 4.2e-5 at 256."}
    )
    assert told(said, "TUNE-08") == []


def test_another_scale_wants_it_too_and_the_base_as_it_is_does_not() -> None:
    # covers TUNE-08
    wider = replace(refresh(), model_settings=("run.params.width: 32 -> 64",))
    fresh = planned(wider, {"base.start": "fresh", "base.keep": None})
    assert [field for field, _ in told(fresh, "TUNE-08")] == ["value.tuned"]
    as_it_is = planned(other_batch(), {"base.start": "use", "base.keep": None})
    assert told(as_it_is, "TUNE-08") == []


def test_where_nobody_pays_nobody_is_asked() -> None:
    free = replace(other_batch(), money=replace(other_batch().money, billed=False))
    assert told(free, "TUNE-08") == []


def test_a_search_at_another_scale_than_its_target_says_what_carries_it_over() -> None:
    # covers TUNE-08
    target = {"batch": 512, "params": {"size": "1b", "context": 2048, "lr": 1e-4}}
    stated = planned(search(), protocol=target)
    assert told(stated, "TUNE-08") == [], "the team's plan says so"
    silent = planned(stated, {"search.transfer": None})
    ((field, problem),) = told(silent, "TUNE-08")
    assert field == "search.transfer"
    assert "batch 256 instead of 512" in problem and "size 100m instead of 1b" in problem
    assert "context" not in problem and "lr" not in problem, "what is equal, or searched, is no difference"
    same = planned(silent, protocol={"batch": 256, "updates": 14_300})
    assert told(same, "TUNE-08") == []


# --- a rate from elsewhere --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "lr = 3e-4, copied from the paper.",
        "The same as in the reference configuration: 3e-4.",
        "Taken from another team's model card.",
        "It is the library's: from the default config, with a batch of 256.",
    ],
)
def test_a_copied_rate_without_its_recipe_is_refused(text: str) -> None:
    # covers TUNE-09
    ((field, problem),) = told(planned(other_batch(), {"value.tuned": text}), "TUNE-09")
    assert field == "value.tuned"
    assert "a learning rate holds only with its recipe" in problem
    assert [each for each, _ in told(planned(search(), {"search.transfer": text}), "TUNE-09")] == [
        "search.transfer"
    ]


@pytest.mark.parametrize(
    "text",
    [
        "lr = 3e-4 from the paper, at batch 256 with 200 updates of warm-up and a cosine, as here but for the batch.",
        "Tuned anew at batch 512: 5 rates, the ratio is flat between 4e-5 and 8e-5.",
        "100M to 1B keeps width-scaled parameters; warm-up is retuned once at 1B, 1,000 updates.",
    ],
)
def test_a_rate_with_its_recipe_or_tuned_here_is_a_reason(text: str) -> None:
    # covers TUNE-09
    assert told(planned(other_batch(), {"value.tuned": text}), "TUNE-09") == []


# --- what varies is tied to a hypothesis, and nothing has to vary -----------------------------------------------


@pytest.mark.parametrize("line", ["hypothesis", "predicts"])
def test_knobs_vary_under_a_hypothesis_that_says_what_would_be_seen(line: str) -> None:
    # covers TUNE-15
    text = (PLANS / "search.toml").read_text()
    kept = "\n".join(each for each in text.split("\n") if not each.startswith(line))
    with pytest.raises(PlanError) as refused:
        load_plan(kept.encode(), where="search.toml")
    assert [each.field for each in refused.value.findings] == [f"search.{line}"]


def test_one_setting_is_no_search_and_no_verdict() -> None:
    # covers TUNE-15
    text = (PLANS / "search.toml").read_text()
    one = text.replace("trials     = 8", "trials     = 1").replace("top = 2", "top = 1")
    with pytest.raises(PlanError) as refused:
        load_plan(one.encode(), where="search.toml")
    (finding,) = refused.value.findings
    assert finding.field == "search.trials"
    assert "one setting" in finding.message


def test_no_sweep_and_no_plateau_is_asked_for() -> None:
    # covers TUNE-16
    plan = load_plan((PLANS / "plan.toml").read_bytes(), where="plan.toml")
    assert plan.search is None and plan.run.stop == "never"
    for evidence in (digits(), planned(refresh(), {"run.stop": "never"})):
        assert evidence.plan.search is None
        assert [
            each for each in review(evidence).findings if each.field.startswith(("search", "run.stop"))
        ] == []
