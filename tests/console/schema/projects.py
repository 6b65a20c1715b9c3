"""Projects that look at a table, and the schema that somebody wrote for it."""

PROPOSING = """
import drivetrain as dt
from drivetrain import data
from drivetrain.metadata import Schema, Statistics
from drivetrain.pipelines import Files, resolve_files


@dt.component
def Look(table: Files) -> Statistics:
    made = Statistics.new()
    source = data.open_files([file.path for file in resolve_files(table).files])
    data.statistics({"train": source}).save(made.content)
    return made


@dt.component
def SchemaGen(statistics: Statistics) -> Schema:
    made = Schema.new()
    proposed = data.schema_to_yaml(data.infer_schema(data.Statistics.load(statistics.content)))
    (made.content / "schema.yaml").write_text("# from SchemaGen\\n" + proposed)
    return made


@dt.pipeline
def look(table: str = "table.csv") -> None:
    statistics = Look(table)
"""
GENERATING = """
import drivetrain as dt
from drivetrain import data
from drivetrain.components import SchemaGen
from drivetrain.metadata import Statistics
from drivetrain.pipelines import Files, resolve_files


@dt.component
def Look(table: Files) -> Statistics:
    made = Statistics.new()
    source = data.open_files([file.path for file in resolve_files(table).files])
    data.statistics({"train": source}).save(made.content)
    return made


@dt.pipeline
def look(table: str = "table.csv") -> None:
    SchemaGen(Look(table))
"""
VALIDATED = """
import drivetrain as dt
from drivetrain.components import ExampleGen, ExampleValidator, ImportSchema, StatisticsGen
from drivetrain.metadata import Statistics


@dt.pipeline
def look(table: str = "table.csv", place: str = "TRAINING") -> None:
    examples = ExampleGen(table, splits={"train": 1})
    statistics = StatisticsGen(examples)
    schema = ImportSchema("schema.yaml")
    ExampleValidator(examples, statistics, schema, previous=dt.latest(Statistics), environment=place)
"""
MINE = """\
format: drivetrain.schema/1
features:
  carrier:  # two letters, says the IATA
    type: string
    domain: {values: [AA, UA]}  # ask Kim
  delay:
    type: float
    domain: {range: {min: 0, max: 2}}
"""
