"""Where peers are: only what their owners signed is believed."""

from __future__ import annotations

from msgspec.structs import replace

from cloud_gpu.protocol.signing import state
from tests.unit.verifier.builders import (
    DEPLOYMENT,
    FIRST,
    T0,
    address,
    advert,
    block,
    key,
    machine,
    node_key,
    notice,
    peer_of,
    world_events,
)
from verifier.ledger import Ledger
from verifier.whereabouts import Whereabouts

NOW = T0 * 1_000


def whereabouts() -> Whereabouts:
    ledger = Ledger()
    for event in (*world_events("provider", "other"), block(1)):
        ledger.apply(event)
    return Whereabouts(DEPLOYMENT, ledger)


def test_a_node_is_where_its_advert_says() -> None:
    known = whereabouts()
    assert known.node(machine("provider")) is None
    assert known.hear_advert(advert("provider"), NOW)
    place = known.node(machine("provider"))
    assert place is not None
    assert (place.peer, place.addresses) == (peer_of("provider"), ("/memory/provider",))
    assert known.node(machine("provider", index=7)) == place  # the same daemon, most likely
    assert known.node(machine("other")) is None


def test_nobody_speaks_for_anothers_machine() -> None:
    known = whereabouts()
    assert not known.hear_advert(advert("provider", signer=node_key("other")), NOW)
    honest = advert("other")
    stolen = replace(advert("provider").body, peer=peer_of("other"))
    signed = state(stolen, DEPLOYMENT.domain, node_key("provider"), nonce=1, expiry=T0 + 100)
    assert not known.hear_advert(signed, NOW)  # the wallet bound another peer
    bound = replace(advert("provider").body, binding=honest.body.binding)
    signed = state(bound, DEPLOYMENT.domain, node_key("provider"), nonce=1, expiry=T0 + 100)
    assert not known.hear_advert(signed, NOW)
    assert known.node(machine("provider")) is None


def test_an_advert_that_expired_is_not_heard() -> None:
    assert not whereabouts().hear_advert(advert("provider"), NOW + 10**10)


def test_only_the_deployments_verifiers_are_known_by_their_newest_notice() -> None:
    known = whereabouts()
    assert not known.hear_notice(notice(key("stranger"), "stranger"), NOW)
    assert known.verifier(address("stranger")) is None
    assert known.hear_notice(notice(FIRST, "new", at=T0 + 5), NOW)
    assert known.hear_notice(notice(FIRST, "old", at=T0), NOW)  # a repeat that came late
    place = known.verifier(FIRST.address)
    assert place is not None
    assert place.peer == peer_of("new")


def test_a_notice_under_anothers_name_is_refused() -> None:
    forged = replace(notice(key("stranger"), "stranger").body, verifier=FIRST.address)
    signed = state(forged, DEPLOYMENT.domain, key("stranger"), nonce=1, expiry=T0 + 100)
    known = whereabouts()
    assert not known.hear_notice(signed, NOW)
    assert known.verifier(FIRST.address) is None
