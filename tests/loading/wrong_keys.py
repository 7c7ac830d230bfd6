"""What is written where it does not belong, or not written: keys, files, YAML, overrides."""

from tests.loading.wrong_inputs import FABRICS, TOY, WrongInput, toy
from twin.loading.tree import hint

CASES = [
    WrongInput(
        "an unknown key that is near to a known one",
        """\
toy.yaml:6:3: TW010 unknown key `pipelin` in `parallel`
  |   pipelin: 4
  |   ^^^^^^^
  hint: did you mean `pipeline`?""",
        toy("pipeline: 4", "pipelin: 4"),
    ),
    WrongInput(
        "a slip in a required key is one problem, not two",
        """\
toy.yaml:11:3: TW010 unknown key `sequnce` in `train`
  |   sequnce: 128tok
  |   ^^^^^^^
  hint: did you mean `sequence`?""",
        toy("sequence: 128tok", "sequnce: 128tok"),
    ),
    WrongInput(
        "an unknown key that is near to none",
        """\
toy.yaml:4:37: TW010 unknown key `wifi` in `cluster`
  | cluster: {node: toy-node, nodes: 2, wifi: 1, fabric: toy-fabric}
  |                                     ^^^^
  hint: the keys here are: node, nodes, fabric, degraded, jitter""",
        toy("nodes: 2", "nodes: 2, wifi: 1"),
    ),
    WrongInput(
        "a missing key points at its section",
        """\
toy.yaml:8:1: TW011 the key `tokens` is missing in `train`
  | train:
  | ^^^^^
  hint: add `tokens: ...` (tokens of the whole run)""",
        toy("  tokens: 1M\n", ""),
    ),
    WrongInput(
        "a missing section points at the top",
        """\
toy.yaml:1:1: TW011 the key `parallel` is missing
  | schema: 1
  | ^^^^^^^^^
  hint: add `parallel: ...`""",
        toy("parallel:\n  pipeline: 4\n  schedule: 1f1b\n", ""),
    ),
    WrongInput(
        "without a cluster there is no calibration, which is not said twice",
        """\
toy.yaml:1:1: TW011 the key `cluster` is missing
  | schema: 1
  | ^^^^^^^^^
  hint: add `cluster: ...`""",
        toy("cluster: {node: toy-node, nodes: 2, fabric: toy-fabric}\n", ""),
    ),
    WrongInput(
        "a missing part is hinted at with the names of parts",
        """\
toy.yaml:4:1: TW011 the key `fabric` is missing in `cluster`
  | cluster: {node: toy-node, nodes: 2}
  | ^^^^^^^
  hint: """
        + hint("", FABRICS, "name one of the fabrics"),
        toy(", fabric: toy-fabric", ""),
    ),
    WrongInput(
        "a duplicate key gives both positions",
        """\
toy.yaml:8:3: TW003 the key `pipeline` is written twice
  |   pipeline: 8
  |   ^^^^^^^^
  hint: keep one of them; the first is at toy.yaml:6:3""",
        toy("schedule: 1f1b", "schedule: 1f1b\n  pipeline: 8"),
    ),
    WrongInput(
        "an unknown key in an override, with a caret under that part of it",
        """\
--set:1:16: TW010 unknown key `pipelin` in `parallel`
  | --set parallel.pipelin=8
  |                ^^^^^^^
  hint: did you mean `pipeline`?""",
        overrides=("parallel.pipelin=8",),
    ),
    WrongInput(
        "an override without a value",
        """\
--set:1:7: TW005 an override needs a value
  | --set parallel.pipeline
  |       ^^^^^^^^^^^^^^^^^
  hint: write `--set parallel.pipeline=VALUE`""",
        overrides=("parallel.pipeline",),
        exit_code=2,
    ),
    WrongInput(
        "an override with an empty key",
        """\
--set:2:16: TW005 `parallel..x=1` has an empty key
  | --set parallel..x=1
  |                ^
  hint: write keys with one dot between them, `a.b=VALUE`""",
        overrides=("train.sequence=64tok", "parallel..x=1"),
        exit_code=2,
    ),
    WrongInput(
        "an override whose value is not YAML",
        """\
--set:1:29: TW002 not YAML: expected ',' or ']', but got '<stream end>' while parsing a flow sequence
  | --set memory.recompute=[full
  |                             ^
  hint: close the bracket""",  # noqa: E501  # the message is one line
        overrides=("memory.recompute=[full",),
        exit_code=2,
    ),
    WrongInput(
        "an item of a list in an override",
        """\
--set:1:32: TW014 expected a list, got keys with values
  | --set cluster.node.gpu.reserve.0.bytes=2GiB
  |                                ^
  hint: write the whole list, [...]""",
        overrides=("cluster.node.gpu.reserve.0.bytes=2GiB",),
    ),
    WrongInput(
        "a setting that a schedule does not have; the tag of the union is no part of the path",
        """\
toy.yaml:7:26: TW010 unknown key `chunks` in `parallel.schedule`
  |   schedule: {kind: 1f1b, chunks: 2}
  |                          ^^^^^^
  hint: the keys here are: kind""",
        toy("schedule: 1f1b", "schedule: {kind: 1f1b, chunks: 2}"),
    ),
    WrongInput(
        "an error in an inherited file points there, and at what extended it",
        """\
base.yaml:6:13: TW014 expected a whole number, got the text `four`
  |   pipeline: four
  |             ^^^^
  from: toy.yaml:2:10 extends base.yaml""",
        {
            "base.yaml": TOY.replace("pipeline: 4", "pipeline: four"),
            "toy.yaml": "schema: 1\nextends: base.yaml\n",
        },
    ),
    WrongInput(
        "files that extend each other",
        """\
b.yaml:1:10: TW004 these files extend each other: a.yaml -> b.yaml -> a.yaml
  | extends: a.yaml
  |          ^^^^^^
  hint: remove one `extends` of the circle
  from: a.yaml:1:10 extends b.yaml
  from: toy.yaml:2:10 extends a.yaml""",
        {
            "a.yaml": "extends: b.yaml\n",
            "b.yaml": "extends: a.yaml\nname: b\n",
            "toy.yaml": "schema: 1\nextends: a.yaml\n",
        },
    ),
    WrongInput(
        "a file to extend that does not exist; what it would have said is not missed",
        """\
toy.yaml:2:10: TW001 no file `toyy-base.yaml`
  | extends: toyy-base.yaml
  |          ^^^^^^^^^^^^^^
  hint: did you mean `toy-base.yaml`?""",
        {"toy-base.yaml": TOY, "toy.yaml": "schema: 1\nextends: toyy-base.yaml\n"},
    ),
    WrongInput(
        "text that is not YAML",
        """\
toy.yaml:2:10: TW002 not YAML: mapping values are not allowed here
  | name: toy: run
  |          ^
  hint: text that contains `: ` needs quotes""",
        toy("name: a toy run", "name: toy: run"),
    ),
    WrongInput(
        "an empty file",
        """\
toy.yaml:1:1: TW005 the file must hold keys with values
  |
  | ^""",
        {"toy.yaml": ""},
    ),
    WrongInput(
        "a scenario that does not exist",
        """\
TW001 there is no scenario `toi.yaml`
  hint: did you mean `toy.yaml`?""",
        scenario="toi.yaml",
        exit_code=2,
    ),
    WrongInput(
        "everything at once: syntax of keys, parts, units and ranges, in the order of the files",
        """\
toy.yaml:2:1: TW003 the key `schema` is written twice
  | schema: 1
  | ^^^^^^
  hint: keep one of them; the first is at toy.yaml:1:1

toy.yaml:4:8: TW006 there is no `toy-modle` among the models of the catalog
  | model: toy-modle
  |        ^^^^^^^^^
  hint: did you mean `toy-model`?

toy.yaml:5:34: TW015 must be more than 0
  | cluster: {node: toy-node, nodes: 0, fabric: toy-fabric}
  |                                  ^

toy.yaml:7:3: TW010 unknown key `stages` in `parallel`
  |   stages: 4
  |   ^^^^^^
  hint: the keys here are: pipeline, virtual, expert, tensor, expert_tensor, context, context_heads, context_ring, zero, shard_copies, reshard_after_forward, micro_batch, ...

toy.yaml:9:1: TW011 the key `optimizer` is missing in `train`
  | train:
  | ^^^^^
  hint: add `optimizer: ...` (how weights move once the gradients of a step are known)

--set:1:21: TW012 `1` has no unit; this field takes US dollars
  | --set cost.gpu_hour=1
  |                     ^
  hint: write `1USD`""",  # noqa: E501  # the hint is one line
        {
            "toy.yaml": TOY.replace("name: a toy run", "schema: 1\nname: a toy run")
            .replace("toy-model", "toy-modle")
            .replace("nodes: 2", "nodes: 0")
            .replace("pipeline: 4", "stages: 4")
            .replace("  optimizer: adamw\n", "")
        },
        overrides=("cost.gpu_hour=1",),
    ),
]
