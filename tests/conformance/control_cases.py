"""The cases of control flow and history: what the pipelines of `control/` must do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from drivetrain.pipelines import Home, RunResult, decide, open_run

from .case import Case, Step


def _files(**lines: int) -> Callable[[Path], None]:
    def write(base: Path) -> None:
        (base / "data").mkdir(exist_ok=True)
        for name, count in lines.items():
            (base / "data" / f"{name}.txt").write_text("line\n" * count)

    return write


def _mend(base: Path) -> None:
    (base / "mended").touch()


def _answer(result: RunResult, home: Home) -> None:
    for number, approved in enumerate([False, True]):
        decide(home, open_run(home, result.run), f"Approval[{number}]", approved=approved, by="ada")


ORDERS = (
    Case("control/orders:linear", (Step("Make Double Count", values={"Count": 6}),)),
    Case("control/orders:diamond", (Step("Make Double Other Add", values={"Add": 9}),)),
    Case(
        "control/orders:gate",
        (
            Step("Make Check Double Count Note"),
            Step(
                "Make Check", cached="Note", blocked="Double Count", state="STOPPED", parameters={"count": 7},
                reasons={"Double": "Check vetoed: 7 > 5", "Count": "Double is blocked"},
            ),
        ),
    ),
    Case("control/orders:order_without_data", (Step("First Second Third Read", values={"Read": "abc"}),)),
    Case(
        "control/orders:order_after_a_failure",
        (Step("Beside", failed="Fails", blocked="Note", state="FAILED", reasons={"Note": "Fails failed"}),),
    ),
    Case("control/orders:input_list", (Step("A B C Sum", values={"Sum": 7}),)),
    Case(
        "control/orders:optional_inputs",
        (
            Step("Make Add Alone Sum Note", skipped="Double", values={"Add": 3, "Sum": 3, "Note": "x None None"}),
            Step(
                "Make Double Add Alone Sum Note", parameters={"count": 6},
                values={"Add": 18, "Alone": 6, "Sum": 18, "Note": "x None 12"},
            ),
        ),
    ),
    Case(
        "control/orders:scalar_outputs",
        (Step("Pair Note Total", values={"Note": "size None 40", "Total": "total None 4"}),),
    ),
    Case(
        "control/orders:nested",
        (
            Step(
                "Make twice.Make twice.Add twice.Again second.Make second.Add second.Again Sum",
                values={"second.Again": 21, "Sum": 29},
            ),
        ),
    ),
    Case(
        "control/orders:flagged",
        (
            Step(
                "Make part.Make part.Add part.Joined second.One second.Few second.Joined Sum",
                skipped="part.One part.Few second.Make second.Add", values={"Sum": 107},
            ),
            Step(
                "Sum", cached="Make part.Make part.Add part.Joined second.Make second.Add second.Joined",
                skipped="part.One part.Few second.One second.Few", parameters={"large": True}, values={"Sum": 206},
            ),
        ),
    ),
    Case(
        "control/orders:failures_stay_apart",
        (
            Step(
                "Make Fine Count", failed="Fails", blocked="Double", state="FAILED",
                reasons={"Fails": "ValueError: told to fail"},
            ),
        ),
    ),
)  # fmt: skip

BRANCHES = (
    Case(
        "control/branches:over_a_parameter",
        (Step("Big", skipped="Small"), Step("Small", skipped="Big", parameters={"big": False})),
    ),
    Case(
        "control/branches:over_a_scalar",
        (
            Step("Make Count", cached="Many", skipped="Two Few", values={"Many": 3}),
            Step("Make Count Two", skipped="Many Few", parameters={"count": 2}, reasons={"Many": "Count > 2 is false"}),
            Step("Make Count Few", skipped="Many Two", parameters={"count": 0}),
        ),
    ),
    Case(
        "control/branches:over_a_property",
        (Step("Make Note", skipped="Double"), Step("Make Double", skipped="Note", parameters={"count": 4})),
    ),
    Case(
        "control/branches:over_an_expression",
        (
            Step("Make Count Double Note Second"),
            Step("Make Count", skipped="Double Note", cached="Second", parameters={"count": 9, "strict": True}),
            Step("Make Count Double", cached="Note Second", parameters={"count": 10}),
        ),
    ),
    Case(
        "control/branches:in_each_other",
        (
            Step("Make Double Else Outer", skipped="Inner One"),
            Step("Make Double Inner", cached="Outer", skipped="Else One", parameters={"count": 5}),
            Step("Make One", skipped="Double Inner Else Outer", parameters={"count": 1}),
        ),
    ),
    Case(
        "control/branches:joined",
        (
            Step("Make Many Add Note", skipped="Few", values={"Add": 20, "Note": "total None 10"}),
            Step(
                "Make Few Add Note", skipped="Many", parameters={"count": 1},
                values={"Add": 20, "Note": "total None 20"},
            ),
        ),
    ),
    Case("control/branches:one_of_nothing", (Step("Make Onward", skipped="Double B Add Count"),)),
    Case(
        "control/branches:skipped_travels",
        (Step("Make", skipped="Double Add Count Note Sum", reasons={"Add": "Double was skipped"}),),
    ),
    Case(
        "control/branches:a_condition_that_fails",
        (Step("Names", failed="Fails", blocked="Note", state="FAILED", reasons={"Note": "Fails failed"}),),
    ),
    Case(
        "control/branches:a_gate_in_a_branch",
        (
            Step("Make Double", skipped="Check"),
            Step("Check", cached="Make", blocked="Double", state="STOPPED", parameters={"strict": True}),
        ),
    ),
)  # fmt: skip

LOOPS = (
    Case("control/loops:over_a_literal", (Step("Make[*3] Double[*3] Sum", values={"Sum": 12, "Double[2]": 6}),)),
    Case(
        "control/loops:over_a_parameter",
        (
            Step("Make[*2] Sum", parameters={"counts": [4, 5]}, values={"Sum": 9}),
            Step("Make[2] Sum", cached="Make[*2]", parameters={"counts": [5, 4, 6]}, values={"Sum": 15, "Make[0]": 5}),
        ),
    ),
    Case(
        "control/loops:over_a_returned_list",
        (Step("Names Note[*3] All", values={"All": "all ['n0 None None', 'n1 None None', 'n2 None None'] None"}),),
    ),
    Case(
        "control/loops:over_a_property",
        (Step("Start Make[*3] Add[*3] Sum Total", values={"Sum": 12, "Total": 12}),),
    ),
    Case(
        "control/loops:over_parts_of_items",
        (Step("Note[*2]", values={"Note[0]": "n ['a', 'b'] 4", "Note[1]": "n [] 5"}),),
    ),
    Case(
        "control/loops:in_each_other",
        (
            Step(
                "Names[*3] Note[1,0] Note[2,0] Note[2,1] Gather[*3] Last",
                values={"Gather[2]": "all ['n0 None 2', 'n1 None 2'] None", "Gather[0]": "all [] None"},
            ),
        ),
    ),
    Case(
        "control/loops:over_what_a_loop_gave",
        (Step("Make[*2] Count[*2] Sum", cached="Again[*2]", values={"Sum": 3}),),
    ),
    Case(
        "control/loops:gathered_in_another_loop",
        (
            Step(
                "Note[1] Gather[*2]", skipped="Note[0]",
                values={"Gather[0]": "all ['large None 2'] 7", "Gather[1]": "all ['large None 2'] 8"},
            ),
        ),
    ),
    Case(
        "control/loops:a_branch_around_a_loop_in_a_loop",
        (
            Step(
                "Numbered[1] Make[1,0] Make[1,1] Count[1,0] Count[1,1] Total[1] All",
                skipped="Numbered[0] Make[0] Count[0] Total[0]", reasons={"Total[0]": "Count[0] was skipped"},
            ),
        ),
    ),
    Case(
        "control/loops:in_a_branch",
        (
            Step("Make Inside[*3] Double[*3] Sum Note", values={"Sum": 6}),
            Step(
                cached="Make Note",
                skipped="Inside Double Sum", parameters={"count": 2},
                reasons={"Inside": "Make.total > 2 is false", "Sum": "Double was skipped"},
            ),
        ),
    ),
    Case(
        "control/loops:a_branch_in_a_loop",
        (Step("Make[1] Make[2] Note[0] Sum", skipped="Make[0] Note[1] Note[2]", values={"Sum": 5}),),
    ),
    Case(
        "control/loops:few_at_once",
        (Step("Make[*5] Once[*5] Double[*5] Sum", values={"Sum": 60}),),
    ),
    Case(
        "control/loops:few_at_once_in_each_other",
        (
            Step(
                "Numbered[*3] Make[0,0] Make[0,1] Make[0,2] Make[2,0] Make[2,1] "
                "Count[0,0] Count[0,1] Count[0,2] Count[2,0] Count[2,1] Total[*3] All",
                values={"Total[0]": 3, "Total[1]": 0, "All": 4}, cache=False,
            ),
        ),
    ),
    Case(
        "control/loops:few_of_the_inner_at_once",
        (
            Step(
                "Numbered[*3] Make[0,0] Make[0,1] Make[0,2] Make[2,0] Make[2,1] "
                "Count[0,0] Count[0,1] Count[0,2] Count[2,0] Count[2,1] Total[*3] All",
                values={"Total[0]": 3, "Total[1]": 0, "All": 4}, cache=False,
            ),
        ),
    ),
    Case(
        "control/loops:of_nothing",
        (
            Step("Sum Total", parameters={"counts": []}, values={"Sum": 0, "Total": 0}),
            Step("Make[0] Double[0] Sum Total", parameters={"counts": [2]}, values={"Sum": 4, "Total": 4}),
        ),
    ),
    Case(
        "control/loops:an_item_that_fails",
        (
            Step(
                "Make[*3] Fails[0] Fails[2] Double[0] Double[2] Note", failed="Fails[1]", blocked="Double[1] Sum",
                state="FAILED", reasons={"Double[1]": "Fails[1] failed", "Sum": "Double[1] is blocked"},
            ),
        ),
    ),
    Case("control/loops:gathered", (Step("Pair[*3] Sum Total", values={"Sum": 6, "Total": 60}),)),
    Case(
        "control/loops:held_back",
        (
            Step(
                failed="Fails", blocked="Make Double Sum", state="FAILED",
                reasons={"Make": "Fails failed", "Sum": "Double is blocked"},
            ),
        ),
    ),
    Case(
        "control/loops:over_no_list",
        (
            Step(
                "Make[0,0] Make[0,1] Count[0,0] Count[0,1] Total[0]", failed="Make[1] Count[1]", blocked="Total[1] All",
                state="FAILED", values={"Total[0]": 3},
                reasons={"Make[1]": "inner goes over 'none', which is not a list", "Total[1]": "Count[1] failed"},
            ),
        ),
    ),
    Case(
        "control/loops:a_gate_in_a_loop",
        (Step("Make[*2] Check[*2] Double[0]", blocked="Double[1] Sum", state="STOPPED"),),
    ),
    Case("control/loops:a_pipeline_in_a_loop", (Step("part.Make[*2] part.Double[*2] Sum", values={"Sum": 6}),)),
)  # fmt: skip

OTHERS = (
    Case(
        "control/others:on_exit",
        (
            Step(
                "Make Fails Note Skipped", skipped="Double Alarm",
                values={"Note": "COMPLETE [] 3", "Skipped": "x None None"},
            ),
            Step(
                "Note Skipped Alarm", cached="Make", skipped="Double", failed="Fails", state="FAILED",
                parameters={"bad": True},
                values={"Note": "FAILED ['Fails'] 3", "Alarm": "parts.py:87: ValueError: told to fail None None"},
            ),
        ),
    ),
    Case(
        "control/others:exit_over_failures",
        (
            Step(
                "Make[*3] Fails[0] Note[*2]", failed="Fails[1] Fails[2]", state="FAILED",
                values={"Note[0]": "Fails[1] None None", "Note[1]": "Fails[2] None None"},
            ),
            Step("Fails[1] Fails[2]", cached="Make[*3] Fails[0]", parameters={"most": 3}),
        ),
    ),
    Case(
        "control/others:exit_after_mending",
        (
            Step(
                "Note Alarm", failed="Unmended", skipped="Fine", state="FAILED",
                values={"Note": "FAILED ['Unmended'] None"},
            ),
            Step(
                "Unmended Note Fine", skipped="Alarm", resumes=True, before=_mend,
                values={"Note": "COMPLETE [] None", "Fine": "COMPLETE [] None None None"},
            ),
            Step("Unmended Note Fine", skipped="Alarm", resumes=True),
        ),
    ),
    Case("control/others:retried", (Step("Flaky", values={"Flaky": 3}, reasons={"Flaky": "retry 2 of 3"}),)),
    Case(
        "control/others:retried_in_vain",
        (Step(failed="Flaky Other", state="FAILED", reasons={"Flaky": "try 2", "Other": "try 1"}),),
    ),
    Case("control/others:retried_in_a_loop", (Step("Flaky[*2]", reasons={"Flaky[1]": "retry 1 of 2"}),)),
    Case(
        "control/others:secret",
        (
            Step(failed="Login", state="FAILED", reasons={"Login": "CONFORMANCE_TOKEN is not set"}),
            Step(
                failed="Login", state="FAILED", env={"CONFORMANCE_TOKEN": "wrong-one"},
                reasons={"Login": "ValueError: refused: ***"},
            ),
            Step("Login", env={"CONFORMANCE_TOKEN": "right-one"}, values={"Login": 9}),
        ),
    ),
    Case("control/orders:linear", (Step("Make Double Count"), Step(cached="Make Double Count"))),
    Case(
        "control/orders:linear",
        (Step("Make Double Count"), Step("Make Double Count", cache=False), Step(cached="Make Double Count")),
    ),
    Case(
        "control/loops:over_a_property",
        (
            Step("Start Make[*3] Add[*3] Sum Total"),
            Step("Add[*3] Sum", cached="Start Make[*3]", skipped="Total", only=("Add", "Sum"), cache=False),
        ),
    ),
    Case(
        "control/others:never_cached",
        (Step("Make Count"), Step("Make", cached="Count"), Step("Make Count", parameters={"count": 4})),
    ),
    Case(
        "control/others:newest",
        (
            Step("Make Compare", values={"Compare": "None -> 3"}),
            Step("Make Compare", parameters={"count": 4}, values={"Compare": "3 -> 4"}),
            Step(cached="Make Compare", parameters={"count": 4}, values={"Compare": "3 -> 4"}),
        ),
    ),
    Case(
        "control/others:newest_blessed",
        (
            Step("Learn Judge Note", parameters={"skill": 5}),
            Step("Learn Judge", skipped="Note", parameters={"skill": 4}),
            Step("Learn Judge", cached="Note", parameters={"skill": 6}),
            Step("Learn Judge Note", parameters={"skill": 6}, cache=False),
        ),
    ),
    Case(
        "control/others:files_by_pattern",
        (
            Step("Lines", before=_files(a=2, b=3), values={"Lines": 5}),
            Step(cached="Lines", before=_files(a=2), values={"Lines": 5}),
            Step("Lines", before=_files(c=4), values={"Lines": 9}),
            Step("Lines", parameters={"data": "data/a.txt"}, values={"Lines": 2}),
            Step(
                failed="Lines", parameters={"data": "none/*.txt"}, state="FAILED", reasons={"Lines": "none/*.txt"}
            ),
        ),
    ),
    Case(
        "control/others:functions_by_name",
        (Step("Make Apply Negated", values={"Apply": 9, "Negated": -3}),),
    ),
    Case(
        "control/others:mended_later",
        (
            Step(
                "Make Double", failed="Unmended", blocked="Each Item Sum Items", state="FAILED",
                reasons={"Unmended": "ValueError: not mended", "Each": "Unmended failed"},
            ),
            Step("Make Double Unmended Each[*2] Item[*2] Sum Items", resumes=True, before=_mend, values={"Items": 30}),
            Step("Make Double Unmended Each[*2] Item[*2] Sum Items", resumes=True),
        ),
    ),
    Case(
        "control/others:by_priority",
        (Step("Start Low Mid High Read", parallel=1, values={"Read": "shml"}),),
        refused={
            "beam": "Low has a priority, which the beam runner cannot keep",
            "kubeflow": "Low has a priority, which the kubeflow runner cannot keep",
        },
    ),
    Case(
        "control/others:environment",
        (
            Step(
                "Make Variable Without", env={"CONFORMANCE_TOKEN": "right-one"},
                values={"Variable": "3 9", "Without": "None 0"},
            ),
        ),
        refused={"inline": "Variable has environment variables of its own, which the inline runner cannot keep"},
    ),
    Case(
        "control/others:asked",
        (
            Step(
                failed="Approval[*2]", blocked="Make[*2] Double[*2] Sum", state="FAILED", after=_answer,
                reasons={"Approval[1]": "nobody answered 'on with it?' within 0.05 s", "Make[0]": "Approval[0] failed"},
            ),
            Step("Approval[*2] Make[1] Double[1] Sum", skipped="Make[0] Double[0]", resumes=True, values={"Sum": 8}),
            Step(failed="Approval[*2]", blocked="Make[*2] Double[*2] Sum", state="FAILED"),
        ),
    ),
    Case(
        "control/others:timed",
        (Step("Make"),),
        refused={"inline": "Make has a timeout, which the inline runner cannot keep"},
    ),
)  # fmt: skip

CASES = (*ORDERS, *BRANCHES, *LOOPS, *OTHERS)
