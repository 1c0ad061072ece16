"""The way out that everybody can take at the end of a season, and what the book owes until then."""

from __future__ import annotations

from benchmarks._season import Season
from benchmarks._season_audits import end_audits
from benchmarks._season_futures import end_futures
from benchmarks._season_groups import end_campaigns, id_of
from cloud_gpu.protocol.adapters.bindings import futures, group_buy, lease_book, payment_token
from cloud_gpu.protocol.calls import ExpireLease, RefundUnstarted
from cloud_gpu.protocol.lease import MachineStatus
from cloud_gpu.protocol.units import GpuSeconds, Price, cost_down

_LONGEST_LEASE_S = 7 * 86_400


def everybody_exits(s: Season) -> None:
    """By moves that anybody may make; then machines retire and accounts empty themselves."""
    anybody, windows = s.stranger().wallet, s.chain.deployment.windows
    s.chain.pass_time(2 * windows.start + windows.claim + _LONGEST_LEASE_S)
    for rented in list(s.live):
        started = rented.status is not MachineStatus.FUNDED
        end = ExpireLease if started else RefundUnstarted
        s.must(anybody, end(lease=rented.key))
        s.refresh(rented)
    assert not s.live, f"no way out for {s.live}"
    end_futures(s)
    end_campaigns(s)
    end_audits(s)
    for machine in s.machines:
        if s.machine(machine).status not in (MachineStatus.NONE, MachineStatus.RETIRING):
            s.must(machine.provider.wallet, lease_book.retire(machine.index))
    s.chain.pass_time(windows.retire + 1)
    for machine in s.machines:
        if s.machine(machine).status != MachineStatus.NONE:
            s.must(machine.provider.wallet, lease_book.finish_retire(machine.index))
    for number in range(1, s.chain.ask(lease_book.counts()).accounts + 1):
        owner = s.chain.owner(s.chain.ask(lease_book.address_of(number)))
        if cash := s.chain.ask(lease_book.account_of(owner.address)).cash:
            s.must(owner, lease_book.withdraw(cash))


def owed(s: Season) -> int:
    """Everything that the book owes by its own account: its token balance must be that (I1)."""
    ask, unit = s.chain.ask, s.chain.deployment.bond_unit.value
    numbers = range(1, ask(lease_book.counts()).accounts + 1)
    owners = [ask(lease_book.address_of(number)) for number in numbers]
    total = sum(ask(lease_book.account_of(owner)).cash for owner in owners)
    total += sum(s.machine(machine).bond * unit for machine in s.machines)
    for rented in s.live:
        row = ask(lease_book.lease_of(rented.key.provider, rented.key.index, rented.key.seq))
        total += row.cap - row.paid
    for rented in (*s.live, *s.ended):
        if rented.verified:
            key = rented.key
            held = ask(lease_book.held_of(key.provider, key.index, key.seq))
            total += held.amount + held.audit
    return total + ask(lease_book.batched()) + margins(s) + pledged(s)


def margins(s: Season) -> int:
    """What stands behind contracts and delivered units, and what longs funded (I11)."""
    total = 0
    for ahead in s.ahead:
        row = s.chain.ask(futures.contract_of(ahead.number))
        total += row.long_margin + row.short_margin
        if row.funded:
            window = GpuSeconds(row.series.window_seconds)
            total += cost_down(Price(row.price), window).value * row.units
    for key in s.units:
        unit = s.chain.ask(futures.unit_of(key.provider, key.index, key.seq))
        total += unit.long_margin + unit.short_margin
    return total


def pledged(s: Season) -> int:
    """What campaigns lock (I12)."""
    return sum(
        s.chain.ask(group_buy.pledge_of(id_of(s, pool).raw, place)).amount
        for pool in s.pools
        for place in pool.pledges
    )


def balance(s: Season) -> int:
    """The book's tokens."""
    return s.chain.ask(payment_token.balance_of(s.chain.deployment.lease_book))
