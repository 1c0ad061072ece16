"""Puts the contracts on a chain, whatever interrupts it, and writes down where. Blocking.

Any EVM node with EIP-1559 serves. Every contract has one transaction number, fixed before anything
is sent: what is sent again after a crash replaces or repeats, and never creates a second one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from cloud_gpu.protocol.adapters import evm_views as views
from cloud_gpu.protocol.adapters.bindings import payment_token
from cloud_gpu.protocol.adapters.deployment_check import check_code, check_deployment, is_there
from cloud_gpu.protocol.adapters.deployment_files import (
    Progress,
    StepProgress,
    progress_path,
    read_deployment,
    read_progress,
    write_deployment,
    write_progress,
)
from cloud_gpu.protocol.adapters.deployment_plan import (
    DeploymentPlan,
    PlannedContract,
    plan_deployment,
)
from cloud_gpu.protocol.adapters.evm_direct import explained, why_reverted
from cloud_gpu.protocol.adapters.evm_rpc import Rpc, RpcError, whole
from cloud_gpu.protocol.adapters.evm_sender import GAS_MAX, fees_of
from cloud_gpu.protocol.adapters.evm_transaction import Fees, Transaction
from cloud_gpu.protocol.adapters.patience import Patience
from cloud_gpu.protocol.deployment import Deployment, DeploymentTerms
from cloud_gpu.protocol.errors import (
    ChainUnavailable,
    FundsTooSmall,
    GasTooSmall,
    SettingsInvalid,
    TransactionReverted,
)
from cloud_gpu.protocol.identity import Signer
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Address, Digest

_FIRST_POLL_S: Final = 0.005
_POLL_S_MAX: Final = 0.1
"""A devnet may mine at once, a public chain takes seconds."""
_BUMP_AFTER_S: Final = 45.0
_LOST_POLLS: Final = 10
"""A number that is used up, without a receipt, for so many looks was not used by us."""

Say = Callable[[str], None]


def plan(rpc: Rpc, deployer: Address, terms: DeploymentTerms) -> tuple[DeploymentPlan, Fees]:
    """What a deployment begun now would send, and the fees that would be offered.

    Sends nothing. Raises ChainUnavailable, also while transactions of the account wait.
    """
    chain_id, waiting, count, block, tip = rpc.batch(
        [
            ("eth_chainId", ()),
            ("eth_getTransactionCount", (str(deployer), "pending")),
            ("eth_getTransactionCount", (str(deployer), "latest")),
            ("eth_getBlockByNumber", ("latest", False)),
            ("eth_maxPriorityFeePerGas", ()),
        ]
    )
    for answer in (chain_id, waiting, count, block):
        if isinstance(answer, RpcError):
            raise ChainUnavailable(f"the EVM node refused: {answer}") from answer
    if whole(waiting) != whole(count):
        raise ChainUnavailable(
            f"{whole(waiting) - whole(count)} transactions of {deployer} wait to be mined: the"
            " contracts' addresses depend on their number. Try again when they are, and let"
            " nothing else send with this key meanwhile"
        )
    planned = plan_deployment(
        terms, chain_id=whole(chain_id), deployer=deployer, first_nonce=whole(count)
    )
    return planned, fees_of(block, tip)


def deploy(
    rpc_url: str,
    key: Signer,
    terms: DeploymentTerms,
    *,
    path: Path | None = None,
    say: Say = lambda _text: None,
    timeout_s: float = 600.0,
) -> Deployment:
    """Deploy what `terms` want; each contract is `terms.confirmations` blocks deep at the end.

    With a `path`, a call that was interrupted goes on where it was, one that is repeated finds
    its result; the result is written there as JSON. `key` pays for gas and has no right in the
    contracts afterwards; nothing else may send with it meanwhile. Raises TransactionReverted
    (LeaseBook_DecimalsTooMany, …), GasTooSmall (nothing was sent), SettingsInvalid (the file is
    of another deployment), DeploymentDiffers, ChainUnavailable (call again to go on).
    """
    with Rpc(rpc_url) as rpc:
        if path is not None and (done := _finished(rpc, key.address, terms, path)) is not None:
            return done
        work = _Deploying(rpc, key, terms, progress_path(path) if path else None, say, timeout_s)
        first_block = work.run()
        decimals = views.ask(rpc, work.token, payment_token.decimals())
        deployment = work.plan.result(bond_unit=TokenAmount(10**decimals), first_block=first_block)
        check_deployment(rpc, deployment)
    if path is not None:
        write_deployment(path, deployment)
        progress_path(path).unlink(missing_ok=True)
    return deployment


def _finished(rpc: Rpc, deployer: Address, terms: DeploymentTerms, path: Path) -> Deployment | None:
    """What an earlier call completed under the same terms. Raises SettingsInvalid for others'."""
    if not path.exists():
        return None
    found = read_deployment(path)
    token = found.token if terms.token is None else terms.token
    planned = plan_deployment(
        msgspec.structs.replace(terms, token=token),
        chain_id=found.chain_id,
        deployer=deployer,
        first_nonce=0,
    )
    wanted = planned.result(bond_unit=found.bond_unit, first_block=found.first_block)
    made = (
        *("lease_book", "front_office", "back_office"),
        *("verification", "futures", "group_buy"),
    )
    places = {name: getattr(found, name) for name in made}
    if msgspec.structs.replace(wanted, **places) != found:
        raise SettingsInvalid(
            f"deployment {path}: holds another deployment, which is not overwritten; choose"
            " another file, or move this one away"
        )
    check_deployment(rpc, found)
    progress_path(path).unlink(missing_ok=True)
    return found


class _Deploying:
    """One deployment under way."""

    def __init__(
        self,
        rpc: Rpc,
        key: Signer,
        terms: DeploymentTerms,
        path: Path | None,
        say: Say,
        timeout_s: float,
    ) -> None:
        self._rpc, self._key, self._path, self._say = rpc, key, path, say
        self._give_up_at = time.monotonic() + timeout_s
        self._sent_at: dict[Digest, float] = {}
        self._lost: dict[str, int] = {}
        found = read_progress(path) if path else None
        self.plan, self._progress = self._resumed(terms, found) if found else self._begun(terms)

    @property
    def token(self) -> Address:
        """The payment token, deployed or given."""
        return self.plan.terms.token or self.plan.contracts[0].address

    def run(self) -> int:
        """Until every contract is mined and deep enough; the block where logs begin."""
        self._require_money()
        patience, before = Patience(_FIRST_POLL_S, _POLL_S_MAX), self._progress
        while not self._turn():
            if time.monotonic() > self._give_up_at:
                raise ChainUnavailable(
                    "the deployment did not come to its end in time. Nothing is lost:"
                    " run it again to go on"
                )
            if self._progress is not before:
                patience.reset()
            before = self._progress
            time.sleep(patience.longer())
        for each in self.plan.contracts:
            check_code(self._rpc, each.contract, each.address)
        blocks = [step.block for step in self._progress.steps if step.block is not None]
        return min(blocks) if len(blocks) == len(self.plan.contracts) else self._progress.began_at

    # Beginning.

    def _begun(self, terms: DeploymentTerms) -> tuple[DeploymentPlan, Progress]:
        planned, _fees = plan(self._rpc, self._key.address, terms)
        steps = tuple(
            StepProgress(contract=each.contract, address=each.address) for each in planned.contracts
        )
        return planned, Progress(
            plan=planned.digest,
            chain_id=planned.chain_id,
            deployer=planned.deployer,
            first_nonce=planned.first_nonce,
            began_at=whole(self._rpc.call("eth_blockNumber")),
            steps=steps,
        )

    def _resumed(self, terms: DeploymentTerms, found: Progress) -> tuple[DeploymentPlan, Progress]:
        chain_id = whole(self._rpc.call("eth_chainId"))
        planned = plan_deployment(
            terms, chain_id=chain_id, deployer=self._key.address, first_nonce=found.first_nonce
        )
        for field, had, have in (
            ("chain_id", found.chain_id, chain_id),
            ("deployer", found.deployer, self._key.address),
            ("plan", found.plan, planned.digest),
        ):
            if had != have:
                raise SettingsInvalid(
                    f"progress {self._path}: {field}: it was begun with {had}, found {have} now."
                    " Use the same chain, key, settings and package to go on, or move the file"
                    " away to deploy anew"
                )
        self._say(f"going on with the deployment that {self._path} tells of")
        return planned, found

    def _require_money(self) -> None:
        """Before anything is sent: half a deployment would be no use."""
        missing = [
            each
            for each, step in zip(self.plan.contracts, self._progress.steps, strict=True)
            if step.block is None
        ]
        if not missing:
            return
        have = whole(self._rpc.call("eth_getBalance", str(self._key.address), "latest"))
        most = sum(each.gas_most for each in missing) * self._fees().most
        if have < most:
            raise GasTooSmall(
                needed=most,
                have=have,
                text=f"{self._key.address} holds {have} wei, the deployment may cost {most} wei;"
                " send it native currency",
            )

    # Going on.

    def _turn(self) -> bool:
        """One look at the chain, and what is to be done about it; True: all is deep enough."""
        # The count is asked before the receipts: whoever used it up is mined when they are read.
        count, head = self._rpc.all(
            [
                ("eth_getTransactionCount", (str(self._key.address), "latest")),
                ("eth_blockNumber", ()),
            ]
        )
        deepest = whole(head) - self.plan.terms.confirmations
        is_deep = True
        for place, planned in enumerate(self.plan.contracts):
            step = self._progress.steps[place]
            receipt = self._receipt(step)
            if receipt is not None:
                is_deep &= self._mined(place, planned, receipt) <= deepest
            elif not self._is_found(place, planned, whole(count)):
                return False  # the next ones build on it
        return is_deep

    def _receipt(self, step: StepProgress) -> Mapping[str, Any] | None:
        hashes = reversed(step.sent)
        found = self._rpc.all([("eth_getTransactionReceipt", (str(h),)) for h in hashes])
        return next((receipt for receipt in found if receipt), None)

    def _mined(self, place: int, planned: PlannedContract, receipt: Mapping[str, Any]) -> int:
        block = whole(receipt["blockNumber"])
        if whole(receipt["status"]) != 1:
            raise self._why(planned, receipt)
        if self._progress.steps[place].block != block:
            self._say(f"{planned.contract} {planned.address} in block {block}")
            self._note(place, block=block)
        return block

    def _is_found(self, place: int, planned: PlannedContract, count: int) -> bool:
        """A contract without a receipt: send it, wait for it, or find out who took its number."""
        step = self._progress.steps[place]
        if step.block is not None:  # its block was replaced
            self._note(place, block=None)
        if count < planned.nonce:
            return False
        if count == planned.nonce:
            self._lost.pop(planned.contract, None)
            self._bring(place, planned)
            return False
        if is_there(self._rpc, planned.contract, planned.address):
            return True  # mined, on a node that keeps no receipts
        self._lost[planned.contract] = self._lost.get(planned.contract, 0) + 1
        if self._lost[planned.contract] >= _LOST_POLLS:
            raise ChainUnavailable(
                f"{planned.contract}: transaction {planned.nonce} of {self._key.address}"
                f" was used for something else: another program sent with this key. Move"
                f" {self._path or 'nothing'} away and deploy anew; what was deployed stays unused"
            )
        return False

    def _bring(self, place: int, planned: PlannedContract) -> None:
        step = self._progress.steps[place]
        waiting = self._waiting(step)
        if waiting is None:
            self._send(place, planned, self._fees())
        elif time.monotonic() - self._sent_at.setdefault(step.sent[-1], time.monotonic()) > (
            _BUMP_AFTER_S
        ):
            self._send(place, planned, waiting.bumped(self._fees()))

    def _waiting(self, step: StepProgress) -> Fees | None:
        """What the newest of our transactions that the node still knows offers."""
        for sent in reversed(step.sent):
            found = self._rpc.call("eth_getTransactionByHash", str(sent))
            if found is not None:
                most, tip = found["maxFeePerGas"], found["maxPriorityFeePerGas"]
                return Fees(most=whole(most), tip=whole(tip))
        return None

    def _send(self, place: int, planned: PlannedContract, fees: Fees) -> None:
        request = {"from": str(self._key.address), "data": "0x" + planned.init_code.hex()}
        try:
            gas = whole(self._rpc.call("eth_estimateGas", request, "latest"))
        except RpcError as error:
            raise explained(self._rpc, self._key.address, error) from error
        transaction = Transaction(
            chain_id=self.plan.chain_id,
            nonce=planned.nonce,
            to=None,
            payload=planned.init_code,
            gas=min(GAS_MAX, gas * 12 // 10),
            fees=fees,
        )
        signed = transaction.signed(self._key)
        step = self._progress.steps[place]
        if signed.hash not in step.sent:
            self._note(place, sent=(*step.sent, signed.hash))  # before it leaves
        self._sent_at[signed.hash] = time.monotonic()
        try:
            self._rpc.call("eth_sendRawTransaction", "0x" + signed.raw.hex())
        except RpcError as error:
            if not error.says("already", "nonce too low", "underpriced"):
                raise explained(self._rpc, self._key.address, error) from error

    def _fees(self) -> Fees:
        block, tip = self._rpc.batch(
            [("eth_getBlockByNumber", ("latest", False)), ("eth_maxPriorityFeePerGas", ())]
        )
        if isinstance(block, RpcError):
            raise ChainUnavailable(f"the EVM node refused: {block}") from block
        return fees_of(block, tip)

    def _why(
        self, planned: PlannedContract, receipt: Mapping[str, Any]
    ) -> TransactionReverted | FundsTooSmall | ChainUnavailable:
        transaction = Transaction(
            chain_id=self.plan.chain_id,
            nonce=planned.nonce,
            to=None,
            payload=planned.init_code,
            gas=whole(receipt["gasUsed"]),
            fees=Fees(most=0, tip=0),
        )
        return why_reverted(self._rpc, self._key.address, transaction, receipt)

    def _note(self, place: int, **changes: Any) -> None:
        steps = list(self._progress.steps)
        steps[place] = msgspec.structs.replace(steps[place], **changes)
        self._progress = msgspec.structs.replace(self._progress, steps=tuple(steps))
        if self._path is not None:
            write_progress(self._path, self._progress)
