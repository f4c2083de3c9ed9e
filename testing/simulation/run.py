"""One seed: a cluster, its clients, faults; then a time without faults; then the final checks (edge).

    run_seed(17)                        60 simulated seconds of load and faults, then convergence
    run_seed(17, kind="crowds+twice")   another history, of certain kinds (kinds.py); otherwise the seed draws two
    run_seed(17, bugs=("stale_fetch",)) the same with a bug planted, which the checks should find

Phases: start, topics; clients and faults for `seconds`; all faults end and all brokers run again; within
`CONVERGE_SECONDS` every ISR must be full and all clients must make progress; clients stop; within `SETTLE_SECONDS` all
replicas must be equal; brokers stop; tasks and open files must be back at the baseline.

A `Report` has the violations and the cost. The trace hash is a hash of the whole history in 8 bytes.
"""

import gc
import random
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import trio

from barnabas.testing.simulation.admin import Admin
from barnabas.testing.simulation.affected import parties_of
from barnabas.testing.simulation.bookkeepers import Bookkeeper
from barnabas.testing.simulation.bugs import planted
from barnabas.testing.simulation.cluster import Cluster, open_cluster
from barnabas.testing.simulation.committed_readers import CommittedReader
from barnabas.testing.simulation.compacted import TableReader
from barnabas.testing.simulation.consumers import Reader, ReaderPlan
from barnabas.testing.simulation.convergence import Clients, why_not_converged, why_not_settled
from barnabas.testing.simulation.faults import KINDS, MACHINE_CRASHES, draw_kinds
from barnabas.testing.simulation.faults import draw_plan as draw_faults
from barnabas.testing.simulation.groups import Member
from barnabas.testing.simulation.harm import Fault, Harm
from barnabas.testing.simulation.history import History
from barnabas.testing.simulation.hostile import Hostile, SiegeRules
from barnabas.testing.simulation.invariants import Checks
from barnabas.testing.simulation.kinds import LEADERS_WRITE_BELOW, PLAIN, combined, draw_kind
from barnabas.testing.simulation.node import PORT, Node
from barnabas.testing.simulation.observe import Both, Observer, watch_tree
from barnabas.testing.simulation.party import Admission, Lost, Party
from barnabas.testing.simulation.plan import ACCOUNTS, STEADY, RunPlan, draw_plan
from barnabas.testing.simulation.processors import Processor
from barnabas.testing.simulation.producers import Twin, Writer, WriterPlan
from barnabas.testing.simulation.rules import Violation
from barnabas.testing.simulation.schedule import Simulation, SimulationStalled, simulate
from barnabas.testing.simulation.secured import (
    ADMIN,
    CLIENT,
    OTHERS,
    Keeper,
    SecuredRules,
    Stranger,
    prepare,
    properties_of,
)
from barnabas.testing.simulation.story import Story
from barnabas.testing.simulation.transaction_replicas import check_at_rest
from barnabas.testing.simulation.transaction_rules import TransactionRules
from barnabas.testing.simulation.transactional import TransactionalPlan, TransactionalWriter
from barnabas.wire.topics import TopicPartition

if TYPE_CHECKING:
    from barnabas.testing.simulation.diagram.recorder import Recorder

SECONDS = 60.0
CONVERGE_SECONDS = 30.0
SETTLE_SECONDS = 15.0
LOOK_SECONDS = 0.5
SIEGE_SECONDS = 15.0
DAY_MS = 86_400_000
WELL_BEHAVED = ("writer-", "reader-", "member-", "admin")
RECKLESS_SHARE = 0.3  # of the runs: machines may crash however many did before
CLIENTS_END_SECONDS = 60.0
NOT_IN_JSON = {"parties", "story", "timed_story", "broken"}  # of a report
UNCERTAIN_RULES = {"I10", "I11"}  # that the cluster did not come to rest is no proof: any bug may delay it


@dataclass
class Report:
    """What became of one seed."""

    seed: int
    kind: str
    violations: list[str] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)  # the ids of the broken rules, first one first
    events: dict[str, int] = field(default_factory=dict)  # what brokers answered
    counts: dict[str, int] = field(default_factory=dict)  # what happened to replicas
    faults: dict[str, int] = field(default_factory=dict)
    converged_seconds: float = -1.0
    simulated_seconds: float = 0.0
    cpu_seconds: float = 0.0
    steps: int = 0
    messages: int = 0
    trace: str = ""
    parties: list[str] = field(default_factory=list)  # the names of all who take part
    story: list[str] = field(default_factory=list)
    timed_story: list[tuple[float, str]] = field(default_factory=list)  # the story, with its times in seconds
    broken: list[Violation] = field(default_factory=list)  # the violations, with their times

    def as_json(self) -> dict[str, object]:
        """Everything but the story, and what a diagram needs."""
        return {name: value for name, value in asdict(self).items() if name not in NOT_IN_JSON}


def run_seed(
    seed: int,
    seconds: float = SECONDS,
    bugs: Sequence[str] = (),
    kind: str = "",
    *,
    until_caught: bool = False,
    recorder: "Recorder | None" = None,
) -> Report:
    """Run one seed, of these kinds or of two that it draws; violations are in the report.

    `until_caught`: no longer than to the first violation that proves a bug (`UNCERTAIN_RULES`). `recorder` hears what
    happens, and changes nothing.
    """
    report = Report(seed, kind or draw_kind(random.Random(f"{seed} kinds")))
    began = time.process_time()
    collecting = gc.isenabled()
    gc.disable()  # one run makes little garbage in cycles, and looking for it takes a tenth of the time
    try:
        with planted(bugs):
            run = Run(seconds, report, until_caught=until_caught, recorder=recorder)
            try:
                _, simulation = simulate(seed, run.main)
            except SimulationStalled as stalled:
                _note_end(report, "I10", str(stalled))
            except Exception as failure:  # a broker's own mistake ended everything: that is what was looked for
                _note_end(report, "I16", "".join(traceback.format_exception(failure)))
            else:
                report.steps, report.trace = simulation.trace.step_count, simulation.trace.digest()
    finally:
        if collecting:
            gc.enable()
            gc.collect()

    report.cpu_seconds = time.process_time() - began
    return report


def _note_end(report: Report, rule: str, why: str) -> None:
    """The run ended before its time."""
    report.violations.append(f"{rule} {why}")
    report.rules.append(rule)
    report.broken.append(Violation(rule, report.simulated_seconds, why))


class Run:
    """One run of one seed."""

    def __init__(
        self, seconds: float, report: Report, *, until_caught: bool = False, recorder: "Recorder | None" = None
    ) -> None:
        self.kind = None if report.kind == PLAIN else combined(report.kind)
        self.seconds = seconds
        self.report = report
        self.until_caught = until_caught
        self.recorder = recorder
        self.clients = Clients()
        self.secured: SecuredRules | None = None
        self.siege: SiegeRules | None = None

    async def main(self, simulation: Simulation) -> None:
        """Everything, in virtual time."""
        tasks_before = trio.lowlevel.current_statistics().tasks_living
        story = Story(simulation.clock.current_time)
        checks = Checks(lambda: story.seconds, story.tell)
        plan = draw_plan(simulation.rng("plan"))
        if self.kind is not None:
            plan = self.kind.shape(plan, simulation.rng("kind"))
        checks.truths.names_identify = bool(plan.levels)
        checks.truths.compacted_topics = {each.name for each in plan.topics if each.is_compacted}
        retentions_ms = [int(each.configs.get("delete.retention.ms", DAY_MS)) for each in plan.topics]
        checks.tombstone_seconds = min(retentions_ms) / 1000
        checks.in_sync.replicas_min = {each.name: each.in_sync_min for each in plan.topics}
        checks.leaders.leaders_write_states = any(level < LEADERS_WRITE_BELOW for level in plan.levels)
        scope = trio.CancelScope()
        if self.until_caught:
            checks.findings.on_violation = lambda rule: None if rule in UNCERTAIN_RULES else scope.cancel()
        try:
            with scope:
                async with open_cluster(simulation, brokers=plan.brokers) as cluster:
                    self.report.parties = [*(node.name for node in cluster.nodes.values()), "store"]
                    if plan.transactional_ids:
                        checks.transactions = TransactionRules(checks.violate, cluster.now_ms)
                    if plan.secured is not None:
                        self.secured = SecuredRules(checks.violate, plan.secured)
                        prepare(cluster.store.tree)
                    if plan.hostile:
                        self.siege = SiegeRules(checks.violate, simulation.clock.current_time)
                        cluster.net.on_send = self.siege.sent
                    self._equip(cluster, plan)
                    self._watch(cluster, checks)
                    if self.recorder is not None:
                        self._record(cluster, self.recorder, story)
                    await self._play(cluster, plan, checks, story)
                    for bug in cluster.bugs:
                        checks.violate("I16", bug)
            tasks = trio.lowlevel.current_statistics().tasks_living
            if tasks != tasks_before and not scope.cancelled_caught:
                checks.violate("I11", f"{tasks} tasks are left, {tasks_before} were there before")
        finally:
            self.report.violations = [str(each) for each in checks.violations]
            self.report.rules = [each.rule for each in checks.violations]
            self.report.broken = list(checks.violations)
            self.report.counts = checks.counts
            if checks.transactions is not None:
                self.report.counts |= {f"transactions {each}": n for each, n in checks.transactions.counts.items()}
            if self.secured is not None:
                self.report.counts |= self.secured.counts
            if self.siege is not None:
                self.report.counts |= self.siege.counts
            self.report.simulated_seconds = story.seconds
            self.report.story = list(story)
            self.report.timed_story = story.events
            if self.recorder is not None:
                self.recorder.finish()

    # -- set-up

    @staticmethod
    def _equip(cluster: Cluster, plan: RunPlan) -> None:
        for number, node in enumerate(cluster.nodes.values()):
            node.properties |= plan.properties
            if plan.racks:
                node.properties["broker.rack"] = f"rack-{number}"
            if plan.levels:
                node.properties["inter.broker.protocol.version"] = plan.levels[number]
            if plan.secured is not None:
                node.properties |= properties_of(plan.secured) | {"listeners": f"SASL_PLAINTEXT://{node.name}:{PORT}"}

    def _watch(self, cluster: Cluster, checks: Checks) -> None:
        nodes = list(cluster.nodes.values())
        looker = checks if self.recorder is None else Both(checks, self.recorder)
        observer = Observer(lambda: nodes, looker, cluster.simulation.clock.current_time)
        cluster.on_step(observer.step)
        checks.in_sync.nodes = nodes
        watch_tree(cluster.store.tree, checks.leaders.stored)

    @staticmethod
    def _record(cluster: Cluster, recorder: "Recorder", story: Story) -> None:
        recorder.begin(lambda: story.seconds, list(cluster.nodes.values()))
        # The recorder is set before the first broker starts: connections that exist are not tapped later.
        cluster.net.recorder = recorder
        cluster.store.recorder = recorder
        cluster.on_step(recorder.step)
        watch_tree(cluster.store.tree, recorder.stored)

    def _party(self, cluster: Cluster, name: str, user: str = CLIENT, admission: Admission | None = None) -> Party:
        self.report.parties.append(name)
        bootstrap = [(node.name, PORT) for node in cluster.nodes.values()]
        if self.secured is not None and admission is None:
            admission = self.secured.admission(user, name)
        party = Party(name, cluster.client_net(name), bootstrap, cluster.simulation.rng(name), admission=admission)
        if self.siege is not None and name.startswith(WELL_BEHAVED):
            party.on_served = partial(self.siege.served, name)
        return party

    def _hire(self, cluster: Cluster, plan: RunPlan, checks: Checks, history: History) -> Clients:
        """The clients of the plan."""
        clients = self.clients
        leaders = checks.leaders
        for topic in (each for each in plan.topics if not each.is_compacted):
            leaders.unclean_topics |= {topic.name} if "unclean.leader.election.enable" in topic.configs else set()
            leaders.synced_topics |= {topic.name} if topic.configs.get("flush.messages") == "1" else set()
            for partition in range(topic.partitions):
                pause = plan.write_pause_seconds
                writes_on = len(clients.writers) % 2 == 1
                writing = WriterPlan(topic.name, partition, pause_seconds=pause, writes_on=writes_on)
                party = self._party(cluster, f"writer-{topic.name}-{partition}")
                clients.writers.append(Writer(party, history, writing))
                if topic.has_twin:
                    party = self._party(cluster, f"twin-{topic.name}-{partition}")
                    clients.twins.append(Twin(party, history, writing, clients.writers[-1]))
            for number in range(plan.readers):
                rack = f"rack-{number}" if plan.racks else ""
                party = self._party(cluster, f"reader-{topic.name}-{number}")
                pause = 1.0 if plan.transactional_ids else 0.5
                clients.readers.append(Reader(party, history, ReaderPlan(topic.name, rack=rack, pause_seconds=pause)))

        for acks in (1, 0):
            writing = WriterPlan(plan.topics[acks].name, 0, acks=acks, pause_seconds=2 * plan.write_pause_seconds)
            clients.writers.append(Writer(self._party(cluster, f"writer-acks-{acks}"), history, writing))
        for number in range(plan.groups):
            for each in range(plan.members):
                party = self._party(cluster, f"member-{number}-{each}")
                clients.members.append(Member(party, history, f"group-{number}", STEADY, checks.owns))

        if checks.transactions is not None:
            self._hire_transactional(cluster, plan, checks, checks.transactions, history)
        if self.secured is not None:
            self._hire_to_test_rights(cluster, self.secured)
        if self.siege is not None:
            for number in range(plan.hostile):
                clients.hostile.append(Hostile(self._party(cluster, f"hostile-{number}"), self.siege))
        return clients

    def _hire_to_test_rights(self, cluster: Cluster, rules: SecuredRules) -> None:
        for user in OTHERS:
            self.clients.keepers.append(Keeper(self._party(cluster, f"keeper-{user}", ADMIN), user, rules))
        stranger = self._party(cluster, "stranger", admission=rules.stranger())
        intruder = self._party(cluster, "intruder", admission=rules.stranger("a wrong password"))
        self.clients.strangers.append(Stranger(stranger, intruder, rules, cluster.now_ms))

    def _hire_transactional(
        self, cluster: Cluster, plan: RunPlan, checks: Checks, rules: TransactionRules, history: History
    ) -> None:
        clients = self.clients
        topics = [each for each in plan.topics if not each.is_volatile]
        partitions = [TopicPartition(each.name, index) for each in topics for index in range(each.partitions)]
        tables = frozenset(checks.truths.compacted_topics)
        for number in range(plan.transactional_ids):
            writing = TransactionalPlan(f"id-{number}", partitions, plan.transaction_timeout_ms, tables=tables)
            party = self._party(cluster, f"transactional-{number}")
            clients.transactional.append(TransactionalWriter(party, history, writing, rules))

        for number in range(plan.rivals):
            writing = TransactionalPlan(
                f"id-{number}", partitions, plan.transaction_timeout_ms, rival_seconds=8.0, tables=tables
            )
            party = self._party(cluster, f"rival-{number}")
            clients.transactional.append(TransactionalWriter(party, history, writing, rules))

        outputs = [each for each in partitions if each.topic == ACCOUNTS]
        if plan.has_patient_writer:
            writing = TransactionalPlan("patient", outputs, plan.transaction_timeout_ms, is_patient=True)
            party = self._party(cluster, "patient")
            clients.transactional.append(TransactionalWriter(party, history, writing, rules))

        for number in range(plan.processors):
            party = self._party(cluster, f"processor-{number}")
            writing = TransactionalPlan(f"processor-{number}", outputs, plan.transaction_timeout_ms)

            # The writer has connections of its own, as the producer of an application has.
            writer = TransactionalWriter(self._party(cluster, f"{party.name}-producer"), history, writing, rules)
            session_ms = plan.processor_session_ms
            tell_read = checks.read_committed
            processor = Processor(party, history, "processors", STEADY, checks.owns, writer, tell_read, session_ms)
            clients.members.append(processor)

        if plan.has_bookkeeper:
            party = self._party(cluster, "bookkeeper")
            writing = TransactionalPlan("bookkeeper", (), plan.transaction_timeout_ms)
            writer = TransactionalWriter(self._party(cluster, f"{party.name}-producer"), history, writing, rules)
            clients.bookkeepers.append(Bookkeeper(party, "books", TopicPartition(STEADY, 0), writer))

        for topic in topics:
            for number in range(2 if plan.racks else 1):
                reading = ReaderPlan(topic.name, rack=f"rack-{number}" if plan.racks else "", pause_seconds=0.8)
                party = self._party(cluster, f"committed-{topic.name}-{number}")
                if topic.is_compacted:
                    reading = reading._replace(goes_back=0.0)
                    clients.readers.append(TableReader(party, history, reading, checks.read_table))
                else:
                    clients.readers.append(CommittedReader(party, history, reading, checks.read_committed))

    # -- the phases

    async def _play(self, cluster: Cluster, plan: RunPlan, checks: Checks, story: Story) -> None:
        history = History(cluster.now_ms)
        history.watchers.append(checks.answers.answered)
        await cluster.start()
        weights = None if self.kind is None else self.kind.operations
        admin = Admin(self._party(cluster, "admin", ADMIN), plan.topics, checks, plan.directories, weights)
        await admin.create_all()
        clients = self._hire(cluster, plan, checks, history)
        async with trio.open_nursery() as talking:
            for client in clients.everybody():
                talking.start_soon(client.run)
            talking.start_soon(admin.run, plan.admin_pause_seconds)
            await self._trouble(cluster, checks, story, plan.never)
            admin.stop()
            with trio.move_on_after(CONVERGE_SECONDS):
                await admin.ended.wait()
            story.tell("the faults are over")
            if self.recorder is not None:
                self.recorder.troubles_are_over()
            clients.calm()
            async with trio.open_nursery() as keeping:
                keeping.start_soon(admin.keep_all)
                await self._converge(cluster, clients, checks, story)
                keeping.cancel_scope.cancel()
            if self.siege is not None:
                await self._besiege(admin, self.siege, story)
                await self._converge(cluster, clients, checks, story)
            admin.party.close()
            self.report.events = history.counts
            for client in clients.everybody():
                client.stop()
            talking.cancel_scope.deadline = trio.current_time() + CLIENTS_END_SECONDS

        await self._settle(cluster, checks)
        if checks.transactions is not None and not checks.violations:
            checks.transactions.check_attempts(checks.truths)
            nodes = list(cluster.nodes.values())
            check_at_rest(checks.transactions.violate, nodes, checks.truths)

        await cluster.stop()
        self.report.messages = sum(self.report.events.values())
        if cluster.open_files:
            checks.violate("I11", f"{cluster.open_files} files are left open")

    async def _trouble(self, cluster: Cluster, checks: Checks, story: Story, never: Sequence[str]) -> None:
        """Faults for the time of the run; at the end everything is healed and every broker runs."""
        rng = cluster.simulation.rng("faults")
        brokers = [node.name for node in cluster.nodes.values()]
        clients = [each.party.name for each in self.clients.everybody()]
        kinds = []
        if self.kind is not None:
            kinds = draw_kinds(cluster.simulation.rng("kinds of faults"), self.kind.faults, self.kind.without)
            kinds = [each for each in kinds if each not in never]
        faults = draw_faults(rng, brokers=brokers, clients=clients, seconds=self.seconds, kinds=kinds)

        def on_fault(fault: Fault, took_down: Sequence[str]) -> None:
            parties = parties_of(fault, took_down, [node.name for node in cluster.nodes.values()])
            story.tell(f"fault: {' '.join([fault.kind, *parties])}, for {fault.lasts_seconds:.2f} s")
            if fault.kind in MACHINE_CRASHES:
                checks.lost_power(harm.node(fault.target).broker_id)
            if self.recorder is not None:
                self.recorder.trouble(fault)

        def on_choice(fault: Fault, node: Node) -> None:
            story.tell(f"fault: {fault.kind} has chosen {node.name}")

        # Where any number of machines may crash, the rules tell which losses are permitted.
        harm = Harm(cluster, faults, KINDS, rng.random() < RECKLESS_SHARE, on_fault=on_fault, on_choice=on_choice)
        if checks.transactions is not None:
            checks.transactions.on_moment = harm.moments.come
        self.report.faults = harm.counts
        await harm.run()

    async def _converge(self, cluster: Cluster, clients: Clients, checks: Checks, story: Story) -> None:
        began = trio.current_time()
        before = clients.progress()
        while True:
            why = why_not_converged(cluster, clients, before)
            if why is None:
                self.report.converged_seconds = round(trio.current_time() - began, 3)
                story.tell(f"the cluster is whole again after {self.report.converged_seconds} s")
                return
            if trio.current_time() - began > CONVERGE_SECONDS:
                checks.violate("I10", f"after {CONVERGE_SECONDS} s: {why}")
                return
            await trio.sleep(LOOK_SECONDS)

    async def _besiege(self, admin: Admin, siege: SiegeRules, story: Story) -> None:
        """No fault but the hostile clients; the administrator gives the controller work, members join again."""
        story.tell("nothing but hostile clients troubles the cluster")

        # `keep_all` was cancelled, so an answer to it may be on its way: the siege has connections of its own.
        admin.party.close()
        siege.begin()
        ends = trio.current_time() + SIEGE_SECONDS
        for member in self.clients.members:
            member.begin_again()
        while trio.current_time() < ends:
            with suppress(Lost):
                await admin.reassign()
                await admin.elect_leaders()
            siege.look()
            await trio.sleep(LOOK_SECONDS)

        for member in self.clients.members:
            siege.joined(member.party.name, is_stable=member.is_stable)
        siege.end()

    async def _settle(self, cluster: Cluster, checks: Checks) -> None:
        began = trio.current_time()
        while (missing := why_not_settled(cluster, self.clients, checks)) is not None:
            if trio.current_time() - began > SETTLE_SECONDS:
                rule, why = missing
                checks.violate(rule, f"no client writes, and after {SETTLE_SECONDS} s: {why}")
                return
            await trio.sleep(LOOK_SECONDS)
