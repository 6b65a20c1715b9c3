"""A pipeline of KFP's own SDK with every kind of control flow; no annotations as text, which KFP does not read."""

# mypy: disable-error-code="untyped-decorator,type-arg"

from kfp import dsl

component = dsl.component(base_image="python:3.11")


@component
def number(n: int = 1) -> int:
    return n


@component
def produce(n: int, out: dsl.Output[dsl.Dataset]) -> None:
    pass


@component
def consume(data: dsl.Input[dsl.Dataset]) -> str:
    return ""


@component
def gather(data: dsl.Input[list[dsl.Dataset]], numbers: list) -> None:
    pass


@component
def leave(status: dsl.PipelineTaskFinalStatus) -> None:
    pass


@dsl.pipeline(name="everything")
def everything(limit: int = 2, names: list = ["a"]) -> None:  # noqa: B006
    with dsl.ExitHandler(leave()):
        first = number(n=limit).set_retry(2, backoff_factor=2).set_cpu_limit("1").set_memory_limit("1G")
        with dsl.If(first.output > 1):
            consume(data=produce(n=first.output).outputs["out"])
        with dsl.Else():
            number().after(first)
        with dsl.ParallelFor([1, 2, 3], parallelism=2) as item:
            produced = produce(n=item)
            counted = number(n=item)
        gather(data=dsl.Collected(produced.outputs["out"]), numbers=dsl.Collected(counted.output))
        imported = dsl.importer("gs://bucket/data", artifact_class=dsl.Dataset)
        consume(data=imported.output)
    # Within the handler KFP 2.16 forgets to hand `names` on to its DAG, which the linter tells of.
    with dsl.ParallelFor(names):
        number()
