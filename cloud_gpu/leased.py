"""An open lease as a user holds it: files, packages, commands, cost, and its end.

The party behind it (`buyer`) does the talking; here its notices become results and exceptions.
Everything awaits a port: the same code runs behind a thread, on trio, and in virtual time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final, Protocol

from msgspec import structs

from cloud_gpu.jobs import Echo, Job
from cloud_gpu.outcomes import Bill, Cost, RunResult
from cloud_gpu.packages import (
    EGRESS,
    InstalledPackage,
    archive_path,
    check_requirements,
    enter_command,
    install_command,
    lock_path,
    parse_lock,
)
from cloud_gpu.protocol import limits
from cloud_gpu.protocol import notices as told
from cloud_gpu.protocol.errors import LeaseInterrupted, Rejected
from cloud_gpu.protocol.events import BuyerEvent, CloseWanted, JobWanted
from cloud_gpu.protocol.identity import PeerId
from cloud_gpu.protocol.job import FileRef, JobResult, JobSpec
from cloud_gpu.protocol.lease import LeaseEndReason
from cloud_gpu.protocol.messages import RuntimeReport
from cloud_gpu.protocol.units import (
    GpuSeconds,
    Instant,
    TokenAmount,
    cost_up,
    parse_duration,
)
from cloud_gpu.protocol.utc import format_utc
from cloud_gpu.protocol.values import Digest
from cloud_gpu.spending import Tab
from cloud_gpu.workspace import Workspace, remote_path

_CLOSING_S: Final = 90
"""How long `close` waits for the chain's word before it hands over a bill that is not settled."""


class Line(Protocol):
    """A running Buyer, and the way of files to its node."""

    def post(self, event: BuyerEvent) -> None:
        """Tell the party a fact."""

    def now(self) -> Instant: ...

    @property
    def tab(self) -> Tab | None:
        """The lease's vouchers, once its meter runs."""

    async def changed(self, within_s: float | None = None) -> bool:
        """Until the party told something, or `within_s` passed (then False).

        Raises what ended the party, if it ended.
        """

    async def take(self, local: Path, remote: str) -> tuple[FileRef, ...]:
        """Keep a local file, or all files of a folder, to be sent. Raises `OSError`."""

    async def deliver(self, node: PeerId, file: FileRef, local: Path) -> None:
        """Write a file of the node to a local path. Raises `OutsideWorldError`, `OSError`."""

    async def read(self, node: PeerId, file: FileRef) -> bytes:
        """A small file of the node. Raises `OutsideWorldError`."""

    async def close(self) -> None:
        """End the party."""


class Lease:
    """One open lease. Made by `Client.open`."""

    def __init__(
        self,
        line: Line,
        *,
        funded: told.LeaseFunded,
        usable: told.LeaseUsable,
        node: PeerId,
        gpus: int,
        claim_s: int,
        echo: Echo,
        progress: Callable[[str], None],
        verified: bool = False,
    ) -> None:
        """`verified`: what is paid is held until its audit ends. `progress` tells its user."""
        self._line, self._node, self._echo, self._claim_s = line, node, echo, claim_s
        self._is_verified, self._progress = verified, progress
        self.releasable_at = 0
        """From when its provider may end it, Unix seconds: notice was given; 0: it was not."""
        self.funded, self.gpus = funded, gpus
        self.report: RuntimeReport = usable.report
        self._usable_at: Instant = line.now()
        self._workspace = Workspace()
        self._jobs: dict[Digest, Job] = {}
        self._count = self._installed = 0
        self._failing: told.LeaseFailing | None = None
        self._frozen: told.LeaseFrozen | None = None
        self._over: told.LeaseOver | None = None
        self.bill: Bill | None = None
        """What it cost; None while it is open."""

    @property
    def ending(self) -> bool:
        """Whether it is over, or on its way there: no job will run in it any more."""
        return any((self._over, self._frozen, self._failing))

    @property
    def is_taken_back(self) -> bool:
        """Whether its provider's notice has run out and ended it."""
        found = self._over or self._failing
        return found is not None and found.reason is LeaseEndReason.NOTICE

    @property
    def outlook(self) -> str:
        """What its provider said of its end, in words."""
        if not self.releasable_at:
            return "its provider took its notice back"
        at = format_utc(self.releasable_at)
        return f"its provider gave notice and may end it from {at} on; save what you need"

    # For its jobs.

    def take(self, notice: told.AnyNotice) -> None:
        """The party told something."""
        match notice:
            case told.JobOutput(job=job) | told.JobRefused(job=job):
                if job in self._jobs:
                    self._jobs[job].take(notice)
            case told.JobDone(result=result):
                if result.body.job in self._jobs:
                    self._jobs[result.body.job].take(notice)
            case told.LeaseNoticed():
                self.releasable_at = notice.releasable_at
                self._progress(f"lease {notice.lease.short}: {self.outlook}")
            case told.LeaseFailing():
                self._failing = notice
            case told.LeaseFrozen():
                self._frozen = notice
            case told.LeaseOver():
                self._over = notice
            case _:
                pass  # of the time before it was usable

    def post(self, event: BuyerEvent) -> None:
        """Tell the party a fact."""
        self._line.post(event)

    async def wait(self) -> None:
        """Until something changed."""
        await self._line.changed()

    async def read(self, file: FileRef) -> bytes:
        """A small file of the node."""
        return await self._line.read(self._node, file)

    def refusal(self, refused: told.JobRefused) -> Exception:
        """Why a job has no result."""
        if refused.rejection is not None:
            return Rejected(refused.rejection)
        return self.interruption(refused.detail)

    def interruption(self, detail: str) -> LeaseInterrupted:
        """Its end, as an error of a job that it cut short."""
        reason = self._failing.reason if self._failing else LeaseEndReason.STOPPED
        reason = self._over.reason if self._over else reason
        return LeaseInterrupted(reason.text, f"the lease was interrupted: {detail}")

    def result_of(self, result: JobResult, whole: Mapping[str, bytes]) -> RunResult:
        """A node's result in a user's terms; its files join the session's."""
        detail = result.detail
        try:
            self._workspace.put(result.outputs)
        except ValueError as error:
            detail = f"{detail}; its outputs are not kept for later runs: {error}".lstrip("; ")
        if result.log_cut:
            detail = f"{detail}; it printed more than is kept".lstrip("; ")
        ran_ms = max(0, result.ended_at - result.started_at)
        return RunResult(
            code=result.exit_code,
            outcome=result.outcome,
            stdout=whole["stdout"].decode(errors="replace"),
            stderr=whole["stderr"].decode(errors="replace"),
            duration_s=ran_ms / 1000,
            outputs=result.outputs,
            cost=cost_up(self.funded.price, GpuSeconds(self.gpus * -(-ran_ms // 1000))),
            detail=detail,
        )

    # For its user.

    async def put(self, local: str | Path, remote: str | None = None) -> tuple[str, ...]:
        """Make a local file, or all files of a folder, part of every later run; their paths there.

        Raises ValueError (a path outside the job's folder, too many files), OSError.
        """
        name = Path(local).name
        target = remote_path("." if name in ("", "..") else name, remote)
        files = await self._line.take(Path(local), target)
        self._workspace.put(files)
        return tuple(file.path for file in files)

    async def get(self, remote: str, local: str | Path | None = None) -> tuple[Path, ...]:
        """Fetch a file, a folder or what a pattern matches; where it was written.

        Without `local`, to the same path below the current folder. Raises FileNotFoundError, and
        OutsideWorldError when the node does not send it.
        """
        files = self._workspace.find(remote)
        if not files:
            known = ", ".join(file.path for file in self._workspace.find(".")[:20]) or "no files"
            raise FileNotFoundError(f"{remote}: not in this session; it has {known}")
        written = []
        for file in files:
            target = _target(file.path, remote, local)
            await self._line.deliver(self._node, file, target)
            written.append(target)
        return tuple(written)

    async def install(self, *requirements: str) -> tuple[InstalledPackage, ...]:
        """Install Python packages for every later run; what was installed, with hashes.

        Raises ValueError (an option, path or address), `Rejected` where the lease has no way to a
        package index, `RunError` when pip fails.
        """
        number = self._installed + 1
        command = install_command(number, check_requirements(requirements))
        outputs = (archive_path(number), lock_path(number))
        spec = self._spec(command, outputs=outputs, egress=EGRESS, inputs=())
        await self._start(spec, stream=True).wait(check=True)
        (lock,) = self._workspace.find(lock_path(number))
        self._installed = number
        return parse_lock(await self.read(lock))

    async def run(
        self,
        command: str | Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        check: bool = True,
        timeout: str | int | None = None,  # noqa: ASYNC109  # of the command, on the node
        stream: bool = True,
    ) -> RunResult:
        """Run a command to its end. A text is a shell line, a list is a program and its words.

        `stream` shows what it prints as it comes. Raises `RunError` (with `check`, for a code other
        than 0), `LeaseInterrupted`, `Rejected`.
        """
        job = await self.popen(command, env=env, timeout=timeout, stream=stream)
        return await job.wait(check=check)

    async def popen(
        self,
        command: str | Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        timeout: str | int | None = None,  # noqa: ASYNC109  # of the command, on the node
        stream: bool = False,
    ) -> Job:
        """Start a command and go on; see `Job`."""
        words = ("sh", "-c", command) if isinstance(command, str) else tuple(command)
        spec = self._spec(
            enter_command(self._installed, words),
            environment=dict(env or {}),
            timeout_s=None if timeout is None else parse_duration(timeout),
            inputs=self._workspace.inputs,
        )
        return self._start(spec, stream=stream)

    async def repeat(self, spec: JobSpec, inputs: Path) -> RunResult:
        """Run a job of another lease word for word: only the lease and its number differ.

        Its input files lie in the folder `inputs`, named by their sha256. Raises ValueError (a
        file that is not what its name says), OSError, and what `run` raises.
        """
        for file in spec.inputs:
            (taken,) = await self._line.take(inputs / file.sha256, file.path)
            if taken.sha256 != file.sha256:
                raise ValueError(f"{inputs / file.sha256}: found sha256 {taken.sha256}")
        self._count += 1
        own = structs.replace(spec, lease=self.funded.lease, number=self._count)
        return await self._start(own, stream=False).wait()

    def cost(self) -> Cost:
        """What it costs so far."""
        tab = self._line.tab
        nothing = TokenAmount(0)
        at = self._line.now() // 1000
        return Cost(
            accrued=tab.accrued(at) if tab else nothing,
            promised=tab.promised if tab else nothing,
            cap=self.funded.cap,
            price=self.funded.price,
            gpus=self.gpus,
        )

    async def close(self, within_s: float = _CLOSING_S) -> Bill:
        """End it, settle, and say what it cost. May be called again."""
        if self.bill is None:
            self.post(CloseWanted())
            deadline = self._line.now() + int(within_s * 1000)
            while self._over is None and (left := deadline - self._line.now()) > 0:
                # A stopped lease is settled within its claim window, which may be days.
                if self._frozen is not None and self._claim_s > within_s:
                    break
                await self._line.changed(left / 1000)
            self.bill = self._final_bill()
            await self._line.close()
        return self.bill

    # Inside.

    def _spec(
        self,
        command: Sequence[str],
        *,
        inputs: tuple[FileRef, ...],
        outputs: tuple[str, ...] = (),
        egress: tuple[str, ...] = (),
        environment: dict[str, str] | None = None,
        timeout_s: int | None = None,
    ) -> JobSpec:
        self._count += 1
        left_s = self.funded.duration - (self._line.now() - self._usable_at) // 1000
        bounds = (left_s, timeout_s or left_s, limits.JOB_RUNTIME_S_MAX)
        return JobSpec(
            lease=self.funded.lease,
            number=self._count,
            command=tuple(command),
            inputs=inputs,
            outputs=outputs,
            environment=environment or {},
            runtime_s_max=max(1, min(bounds)),
            egress=egress,
        )

    def _start(self, spec: JobSpec, *, stream: bool) -> Job:
        if self.bill is not None:
            raise LeaseInterrupted(self.bill.reason.text, "the lease was closed: open another one")
        job = self._jobs[spec.id] = Job(self, spec, self._echo if stream else None)
        self.post(JobWanted(spec=spec))
        return job

    def _final_bill(self) -> Bill:
        over, frozen, tab = self._over, self._frozen, self._line.tab
        cap = self.funded.cap
        owed = min(tab.promised, frozen.ceiling if frozen else cap) if tab else cap
        paid = over.paid if over else owed
        notes = [self._failing.detail] if self._failing else []
        if over is None:
            notes.append("not settled yet; whoever follows the chain settles it")
        if self._is_verified and paid:
            notes.append("the provider gets it once its results passed their audit")
        return Bill(
            lease=self.funded.lease,
            gpu_class=self.report.profile.gpu_class,
            gpus=self.gpus,
            price=self.funded.price,
            ran_s=max(0, min(self._line.now() // 1000, tab.ends_at) - tab.started_at) if tab else 0,
            paid=paid,
            refund=cap - paid if over else (frozen.refund if frozen else TokenAmount(0)),
            reason=over.reason if over else LeaseEndReason.STOPPED,
            settled=over is not None,
            note="; ".join(notes),
        )


def _target(path: str, remote: str, local: str | Path | None) -> Path:
    if local is None:
        return Path(path)
    folder = str(PurePosixPath(remote))
    if path == folder:
        is_folder = str(local).endswith("/")
        return Path(local) / PurePosixPath(path).name if is_folder else Path(local)
    below = path.removeprefix(folder + "/") if path.startswith(folder + "/") else path
    return Path(local) / below
