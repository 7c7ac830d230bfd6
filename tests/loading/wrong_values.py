"""Values that a field cannot hold: units, types, ranges, names, sources, expectations."""

from tests.loading.wrong_inputs import FABRICS, WrongInput, toy
from twin.loading.tree import hint
from twin.network.topology import kinds

CASES = [
    WrongInput(
        "a model that is known and cannot be expressed says why",
        """\
--set:1:13: TW040 `nemotron-v3-ultra-550b-26.04` cannot be expressed: the widths of its experts were found in no public configuration
  | --set model=nemotron-v3-ultra-550b-26.04
  |             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  hint: no entry comes close; leave it out""",  # noqa: E501  as long as it is printed
        overrides=("model=nemotron-v3-ultra-550b-26.04",),
    ),
    WrongInput(
        "a bare number in a field with a unit",
        """\
toy.yaml:11:13: TW012 `128` has no unit; this field takes a number of tokens
  |   sequence: 128
  |             ^^^
  hint: write `128tok`""",
        toy("sequence: 128tok", "sequence: 128"),
    ),
    WrongInput(
        "a batch that does not say tokens or sequences",
        """\
toy.yaml:10:17: TW012 a batch is a number of tokens or of sequences, and says which
  |   global_batch: 67M
  |                 ^^^
  hint: write `67Mtok` or `67Mseq`""",
        toy("global_batch: 16seq", "global_batch: 67M"),
    ),
    WrongInput(
        "a batch that splits a sequence",
        """\
toy.yaml:10:17: TW017 1000 tokens are no whole number of sequences of 128 tokens
  |   global_batch: 1000tok
  |                 ^^^^^^^
  hint: write `7seq` (896tok) or `8seq` (1024tok)""",
        toy("global_batch: 16seq", "global_batch: 1000tok"),
    ),
    WrongInput(
        "an ambiguous rate in an override, with a caret under it",
        """\
--set:1:34: TW013 `400Gb/s` can be read in two ways
  | --set cluster.node.nic.bandwidth=400Gb/s
  |                                  ^^^^^^^
  hint: write `400Gbps` (bits) or `400GB/s` (bytes)""",
        overrides=("cluster.node.nic.bandwidth=400Gb/s",),
    ),
    WrongInput(
        "a catalog part that does not exist hides what follows from it",
        """\
toy.yaml:3:8: TW006 there is no `toy-modell` among the models of the catalog
  | model: toy-modell
  |        ^^^^^^^^^^
  hint: did you mean `toy-model`?""",
        toy("toy-model", "toy-modell"),
    ),
    WrongInput(
        "a schedule that does not exist",
        """\
toy.yaml:7:13: TW016 `interleaved` is no kind of `schedule`
  |   schedule: interleaved
  |             ^^^^^^^^^^^
  hint: did you mean `interleaved_1f1b`?""",
        toy("schedule: 1f1b", "schedule: interleaved"),
    ),
    WrongInput(
        "an optimizer that does not exist",
        """\
toy.yaml:12:14: TW016 `adam` is no kind of `optimizer`
  |   optimizer: adam
  |              ^^^^
  hint: did you mean `adamw`?""",
        toy("adamw", "adam"),
    ),
    WrongInput(
        "a kind of attention that does not exist",
        """\
--set:1:28: TW016 `mha` is no kind of `attention`
  | --set model.attention.kind=mha
  |                            ^^^
  hint: write one of: mla, gqa""",
        overrides=("model.attention.kind=mha",),
    ),
    WrongInput(
        "a topology that does not exist, in a part that the scenario names",
        """\
catalog/fabrics/toy-fabric.yaml:2:7: TW016 `torus` is no kind of `fabric`
  | kind: torus
  |       ^^^^^
  hint: write one of: """
        + ", ".join(kinds())
        + """
  from: toy.yaml:4:45 names catalog/fabrics/toy-fabric.yaml""",
        {
            "catalog/fabrics/toy-fabric.yaml": "source: bench\nkind: torus\n"
            "nodes_per_leaf: {value: 4, kind: assumed}\nspines: {value: 4, kind: assumed}\n"
            "efficiency: {value: 0.9, kind: assumed}\nhop_latency: {value: 1us, kind: assumed}\n"
        },
    ),
    WrongInput(
        "a value out of range, with the path through a catalog part",
        """\
--set:1:24: TW015 must be at most 1
  | --set calibration.gemm=1.5
  |                        ^^^""",
        overrides=("calibration.gemm=1.5",),
    ),
    WrongInput(
        "YAML 1.2 has no `yes`",
        """\
toy.yaml:7:22: TW014 expected true or false, got the text `yes`
  |   sequence_parallel: yes
  |                      ^^^
  hint: write true""",
        toy("  schedule: 1f1b\n", "  sequence_parallel: yes\n  schedule: 1f1b\n"),
    ),
    WrongInput(
        "a quoted number",
        """\
toy.yaml:6:13: TW014 expected a whole number, got the text `4`
  |   pipeline: "4"
  |             ^^^
  hint: write 4 without quotes""",
        toy("pipeline: 4", 'pipeline: "4"'),
    ),
    WrongInput(
        "a word that is none of the choices",
        """\
--set:1:23: TW016 the text `fp17` is not one of the choices
  | --set train.precision=fp17
  |                       ^^^^
  hint: write one of: bf16, fp8, nvfp4, mxfp4""",
        overrides=("train.precision=fp17",),
    ),
    WrongInput(
        "a word that is none of the choices, where a list could stand",
        """\
--set:1:23: TW016 the text `autoo` is not one of the choices
  | --set memory.by_stage=autoo
  |                       ^^^^^
  hint: did you mean `auto`?""",
        overrides=("memory.by_stage=autoo",),
    ),
    WrongInput(
        "an order that forgets axes",
        """\
--set:1:22: TW017 the order must name every axis exactly once
  | --set parallel.order=[data, tensor]
  |                      ^^^^^^^^^^^^^^
  hint: write [tensor, context, expert, data, pipeline]""",
        overrides=("parallel.order=[data, tensor]",),
    ),
    WrongInput(
        "a key without a value, where a catalog name could stand",
        """\
toy.yaml:4:37: TW014 expected keys with values, got nothing
  | cluster: {node: toy-node, nodes: 2, fabric: }
  |                                     ^^^^^^
  hint: """
        + hint("", FABRICS, "name one of the fabrics"),
        toy("fabric: toy-fabric", "fabric: "),
    ),
    WrongInput(
        "a catalog part whose numbers nobody vouches for",
        """\
catalog/gpus/unsourced.yaml:2:9: TW007 this catalog number has no source and kind, nor 1 more here
  | memory: 10GiB
  |         ^^^^^
  hint: begin the file with `source: ID` (listed in sources.yaml) and `kind: datasheet | measured | fitted | assumed`; an assumed number may go without source
  from: --set:1:24 names catalog/gpus/unsourced.yaml""",  # noqa: E501  # the hint is one line
        overrides=("cluster.node.gpu=unsourced",),
    ),
    WrongInput(
        "a source that is not listed, and a word that says not how a number is known",
        """\
--set:1:54: TW007 no source `benhc` is listed
  | --set cluster.node.gpu.memory={value: 20GiB, source: benhc, kind: guess}
  |                                                      ^^^^^
  hint: did you mean `bench`?

--set:1:67: TW007 `guess` says not how a number is known
  | --set cluster.node.gpu.memory={value: 20GiB, source: benhc, kind: guess}
  |                                                                   ^^^^^
  hint: write one of: datasheet, measured, fitted, assumed""",
        overrides=("cluster.node.gpu.memory={value: 20GiB, source: benhc, kind: guess}",),
    ),
    WrongInput(
        "a source of what is no number, and one where nobody would ever show it",
        """\
--set:1:20: TW007 `value` must be a number
  | --set name={value: a, source: bench}
  |                    ^
  hint: write anything else by itself

--set:2:29: TW007 only numbers of the model, the cluster and the calibration have a source
  | --set cost.gpu_hour={value: 2.0USD, source: bench, kind: measured}
  |                             ^^^^^^
  hint: write the value by itself""",
        overrides=(
            "name={value: a, source: bench}",
            "cost.gpu_hour={value: 2.0USD, source: bench, kind: measured}",
        ),
    ),
    WrongInput(
        "expectations that compare nothing, or with what a key figure cannot be",
        """\
--set:1:15: TW050 `fast` compares nothing
  | --set expect=[fast, fits > 1, stp_seconds < 25s, step_seconds < 25, mfu > 35, mfu < 1GiB]
  |               ^^^^
  hint: write FIGURE OPERATOR BOUND, such as `step_seconds < 25s`

--set:1:21: TW052 `fits` is true or false, not `> 1`
  | --set expect=[fast, fits > 1, stp_seconds < 25s, step_seconds < 25, mfu > 35, mfu < 1GiB]
  |                     ^^^^^^^^
  hint: write `fits == true` or `fits == false`

--set:1:31: TW051 no key figure is called `stp_seconds`
  | --set expect=[fast, fits > 1, stp_seconds < 25s, step_seconds < 25, mfu > 35, mfu < 1GiB]
  |                               ^^^^^^^^^^^^^^^^^
  hint: did you mean `step_seconds`?

--set:1:50: TW012 `25` has no unit; this field takes a time
  | --set expect=[fast, fits > 1, stp_seconds < 25s, step_seconds < 25, mfu > 35, mfu < 1GiB]
  |                                                  ^^^^^^^^^^^^^^^^^
  hint: write `25s`

--set:1:69: TW015 `mfu` is a share, at most 1
  | --set expect=[fast, fits > 1, stp_seconds < 25s, step_seconds < 25, mfu > 35, mfu < 1GiB]
  |                                                                     ^^^^^^^^
  hint: write `35%`

--set:1:79: TW052 `1GiB` is no share, which `mfu` is
  | --set expect=[fast, fits > 1, stp_seconds < 25s, step_seconds < 25, mfu > 35, mfu < 1GiB]
  |                                                                               ^^^^^^^^^^
  hint: write a share, such as `0.35` or `35%`""",
        overrides=(
            "expect=[fast, fits > 1, stp_seconds < 25s, step_seconds < 25, mfu > 35, mfu < 1GiB]",
        ),
    ),
    WrongInput(
        "an expected cost of a run without a price",
        """\
--set:1:15: TW053 the cost is unknown without a price
  | --set expect=[cost_usd < 5MUSD]
  |               ^^^^^^^^^^^^^^^^
  hint: add `cost: {gpu_hour: 2.0USD}`, with your price""",
        overrides=("expect=[cost_usd < 5MUSD]",),
    ),
    WrongInput(
        "a list without values",
        """\
--set:1:46: TW015 must have 1 or more values
  | --set train.routing={kind: histogram, loads: []}
  |                                              ^^""",
        overrides=("train.routing={kind: histogram, loads: []}",),
    ),
    WrongInput(
        "a wrong value of a list is not told as one that misses",
        """\
--set:1:47: TW015 must be more than 0
  | --set train.routing={kind: histogram, loads: [0]}
  |                                               ^""",
        overrides=("train.routing={kind: histogram, loads: [0]}",),
    ),
    WrongInput(
        "a range without an end",
        """\
--set:1:55: TW011 the list has no value 2
  | --set calibration.matmuls={bf16: {launch: 1us, sides: [1], inner: [2, 1], efficiency: 1, ramp: 1}}
  |                                                       ^^^
  hint: add it

--set:1:67: TW165 from 2 to 1 is no range
  | --set calibration.matmuls={bf16: {launch: 1us, sides: [1], inner: [2, 1], efficiency: 1, ramp: 1}}
  |                                                                   ^^^^^^
  hint: write the least first""",  # noqa: E501  # the message shows the whole line
        overrides=(
            (
                "calibration.matmuls={bf16: {launch: 1us, sides: [1], inner: [2, 1], "
                "efficiency: 1, ramp: 1}}"
            ),
        ),
    ),
    WrongInput(
        "a flag in place of a list",
        """\
--set:1:24: TW014 expected a list, got `true`
  | --set memory.fp8_store=true
  |                        ^^^^
  hint: write the whole list, [...]""",
        overrides=("memory.fp8_store=true",),
    ),
]
