"""Pipelines of numbers by span, and one that asks a person, as the source of a project."""

SPANS = """
    import drivetrain as dt
    from drivetrain.components import Approval
    from drivetrain.pipelines import current

    class Numbers(dt.Artifact):
        total: int = 0

    @dt.component
    def Read(*, span: int) -> Numbers:
        if span == 4:
            raise dt.InputError("span 4 is not there", fix="fetch it")
        current().metric("total", span)
        numbers = Numbers.new(total=span)
        (numbers.content / "n").write_text(str(span))
        return numbers

    @dt.component
    def Double(numbers: Numbers, *, by: int) -> Numbers:
        return Read.fn(span=numbers.total * by + 1000)

    @dt.pipeline
    def spans(span: int = 1, by: int = 2) -> None:
        Double(Read(span=span), by=by)
"""
ASKING = (
    SPANS.partition("    @dt.pipeline")[0]
    + """
    @dt.pipeline
    def asking(wait: float | None = None) -> None:
        numbers = Read(span=1)
        with dt.when(Approval(numbers, message="Push it?", wait=wait).approved):
            Double(numbers, by=2)
        with dt.otherwise():
            Read.options(id="Denied")(span=2)
"""
)
