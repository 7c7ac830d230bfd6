"""Ways into the app beside a question: a launch script, an iteration in several modes; and no page
is empty."""

from tests.ui.test_pages import words
from twin.explore.sweep.sweep import Sweep
from twin.kinds.base import kind_of
from twin.loading import load_any
from twin.ui.answers import Question, Refusal
from twin.ui.examples import BESIDE, WAYS, beside
from twin.ui.explore.questions import SweepAsked
from twin.ui.explore.work import swept
from twin.ui.launch_file import Brought, Read, read
from twin.ui.workspace import Draft, Workspace

SCRIPT = """#SBATCH --nodes=2
srun --label torchrun --nproc_per_node 8 --nnodes $SLURM_NNODES pretrain_gpt.py \\
  --num-layers 4 --hidden-size 512 --num-attention-heads 8 --seq-length 1024 --vocab-size 32000 \\
  --position-embedding-type rope --normalization RMSNorm --disable-bias-linear --swiglu \\
  --micro-batch-size 1 --global-batch-size 64 --train-iters 10 --bf16 --attention-dropout 0 \\
  --hidden-dropout 0 --pipeline-model-parallel-size $PP
"""


def test_a_script_is_read_at_once_and_says_whether_it_fits(opened):
    app = opened("gpt-175b-64xa100-full", page="plan", section="import")
    assert "8,192 tokens per step" in words(app), "an example is there before anything is brought"
    assert "stage 0 needs" in app.error[0].value
    assert "Open the plan" in [one.label for one in app.button]


def test_what_a_script_leaves_open_is_asked_for():
    found = read(Brought(SCRIPT, "mine.sh", "H100"))
    assert isinstance(found, Refusal)
    assert "PP" in found.text
    complete = read(Brought(SCRIPT, "mine.sh", "H100", variables="PP=2"))
    assert isinstance(complete, Read)
    launch, draft = complete.launch, complete.draft
    assert (launch.nodes, launch.parallel.pipeline, launch.remarks) == (2, 2, ())
    assert "node: h100-8gpu" in (draft.text or "")
    assert isinstance(read(Brought(SCRIPT, "mine.sh", "H100", variables="PP")), Refusal)
    assert isinstance(read(Brought(SCRIPT, "mine.sh", "H100", nodes="many")), Refusal)


def test_examples_are_shipped_and_of_one_kind():
    kinds = {name: kind_of(load_any(name)).name for name in {*BESIDE, *BESIDE.values(), *WAYS}}
    assert all(kinds[name] == kinds[other] for name, other in BESIDE.items())
    assert len({kinds[name] for name in WAYS}) == 1
    alone = Workspace((Draft(WAYS[0], WAYS[0]),))
    both = beside(alone)
    assert [one.scenario for one in both.compared] == [WAYS[0], BESIDE[WAYS[0]]]
    assert beside(both) == both, "nothing is put beside two plans"


def test_several_plans_open_side_by_side_and_the_first_is_shown():
    drafts = [Draft(name, name) for name in WAYS]
    found = Workspace((Draft("a", "a"),)).opened(*drafts)
    assert (found.plans, found.open) == (tuple(drafts), drafts[0])


def test_a_weight_update_can_be_swept_and_nothing_else_is_offered(opened):
    app = opened("kimi-k2-weight-update-16xh20", page="explore")
    assert "Sweep" in [one.label for one in app.button]
    assert "Deadline" not in words(app)
    assert "bug in the twin" not in words(app)
    asked = Question("kimi-k2-weight-update-16xh20", None, (), 0)
    done = swept(SweepAsked(asked, ("cluster.nodes=2,4",), "whole"), lambda _: None)
    assert isinstance(done, Sweep)
    assert {row.outcome.status for row in done.rows} == {"fits"}
