"""Jobs that wait for each other."""

from reference.agentic.software.project import Bug, Project

_PLAN = '''"""Jobs with priorities, which wait for other jobs."""

from $package.job import Job, rank


class Plan:
    """Jobs by name, and what became of them."""

    def __init__(self):
        self.jobs = {}
        self.done = []
        self.failed = {}

    def add(self, name, priority=$priority, needs=()):
        """A job that may run when all that it needs is done."""
        if name in self.jobs:
            raise ValueError("there is one already")
        self.jobs[name] = Job(name, priority, needs)

    def ready(self):
        """Names of the jobs that may run now: high priority first, then as they were added."""
        waiting = [job for job in self.jobs.values() if self.may_run(job)]
        return [job.name for job in sorted(waiting, key=rank)]

    def may_run(self, job):
        """Whether it has not run, and all that it needs is done."""
        if job.name in self.done or self.failures(job.name) > RETRIES:
            return False
        return all(need in self.done for need in job.needs)

    def failures(self, name):
        """How often a job has failed."""
        return self.failed.get(name, 0)

    def step(self, works=lambda name: True):
        """Run the first job that may run; its name, or None where there is none."""
        for name in self.ready()[:1]:
            if works(name):
                self.done.append(name)
            else:
                self.failed[name] = self.failures(name) + 1
            return name
        return None

    def run(self, works=lambda name: True):
        """Run all that can run; the names in the order of their runs."""
        names = []
        while (name := self.step(works)) is not None:
            names.append(name)
        return names

    def stuck(self):
        """Names of the jobs that have not been done, sorted."""
        return sorted(set(self.jobs) - set(self.done))


RETRIES = $retries
'''
_JOB = '''"""One job."""


class Job:
    """A name, a priority from 0 to 9, and the names of what it needs."""

    def __init__(self, name, priority, needs):
        if not 0 <= priority <= 9:
            raise ValueError("priority is from 0 to 9")
        self.name, self.priority = name, priority
        self.needs = list(needs)


def rank(job):
    """What to sort by, so that high priorities come first."""
    return -job.priority
'''
_TESTS = """import unittest

from $package.plan import Plan


class PlanTest(unittest.TestCase):
    def test_jobs_run(self):
        plan = Plan()
        plan.add("build")
        self.assertEqual(plan.run(), ["build"])
        self.assertEqual(plan.stuck(), [])

    def test_a_job_waits_for_what_it_needs(self):
        plan = Plan()
        plan.add("test", needs=["build"])
        plan.add("build")
        self.assertEqual(plan.run(), ["build", "test"])

    def test_names_differ(self):
        plan = Plan()
        plan.add("build")
        with self.assertRaises(ValueError):
            plan.add("build")


if __name__ == "__main__":
    unittest.main()
"""
_BEGIN = "from $package.plan import Plan\nfrom $package import plan\np = Plan()\n"
PROJECT = Project(
    "jobs",
    "Jobs that wait for each other.",
    {"package": ("runner", "planner", "jobline"), "priority": ("4", "5"), "retries": ("1", "2")},
    {"plan.py": _PLAN, "job.py": _JOB},
    _TESTS,
    tuple(
        _BEGIN + text
        for text in (
            "p.add('a')\np.add('b', 9)\np.add('c', 0)\nresult = p.run()",
            "p.add('b', 3)\np.add('a', 3)\nresult = p.ready()",
            "p.add('a', 0)\np.add('b', 9, ['a'])\nresult = p.run()",
            "p.add('a', needs=['x'])\np.add('b')\nresult = [p.run(), p.stuck()]",
            "p.add('a', needs=['b'])\np.add('b', needs=['a'])\nresult = [p.run(), p.stuck()]",
            "p.add('a', needs=['b', 'x'])\np.add('b')\nresult = [p.run(), p.stuck()]",
            "p.add('a')\nresult = [p.step(lambda n: False) for _ in range(5)] + [p.failures('a')]",
            "p.add('a')\nresult = [p.step(lambda n: False), p.step(), p.step(), p.done]",
            "p.add('a')\np.add('b')\nresult = [p.step(), p.ready(), p.step(), p.ready()]",
            "needs = ['a']\np.add('b', needs=needs)\nneeds.append('z')\nresult = p.jobs['b'].needs",
            "p.add('a', 10)",
            "p.add('a', 9)\np.add('b', 0)\nresult = [p.jobs['a'].priority, p.ready()]",
            "p.add('a', -1)",
            "p.add('a')\np.add('a')",
            "p.add('a')\nq = Plan()\nq.add('b')\nq.run()\nresult = [p.done, q.done, p.failed]",
        )
    ),
    (
        Bug(
            "boundary",
            "plan.py",
            "self.failures(job.name) > RETRIES",
            "self.failures(job.name) >= RETRIES",
            "Jobs are tried too rarely\n\nA job that fails should be tried again $retries times. "
            "It gets one try less.",
        ),
        Bug(
            "condition",
            "plan.py",
            "all(need in self.done",
            "any(need in self.done",
            "Jobs start before all they need is done\n\nA job that needs two others runs as soon "
            "as one of them is done. And a job that needs nothing never runs.",
        ),
        Bug(
            "state",
            "job.py",
            "self.needs = list(needs)",
            "self.needs = needs",
            "Changing my list changes the job\n\nI add a job with a list of what it needs, and "
            "later append to my list for the next job. The first job needs the new one, too.",
        ),
        Bug(
            "argument",
            "job.py",
            "return -job.priority",
            "return job.priority",
            "Low priorities run first\n\nThe job of priority 9 runs after that of priority 0. It "
            "should be the other way round.",
        ),
        Bug(
            "missing case",
            "plan.py",
            '        if name in self.jobs:\n            raise ValueError("there is one already")\n',
            '        if name in self.done:\n            raise ValueError("there is one already")\n',
            "A second job of the same name replaces the first\n\nAdding two jobs of one name "
            "should raise ValueError; it does so only when the first one has run.",
        ),
        Bug(
            "arithmetic",
            "plan.py",
            "self.failed[name] = self.failures(name) + 1",
            "self.failed[name] = 1",
            "A failing job is tried forever\n\nWhen a job keeps failing, its failures are said to "
            "be 1 whatever happens, and `run` does not end.",
        ),
    ),
)
