"""Who asks the web, through whom, and who only has a connection to it."""

import pytest

from firstlight.core.bundle import Bundle
from firstlight.core.vocabulary import Phase
from firstlight.diagnose import web
from firstlight.diagnose.scene import scene_of
from firstlight.testing.bundles import GB, bundle, folder, line, process, rank, socket

HUB = ["_request_wrapper (huggingface_hub/file_download.py:309)", "main (serve.py:9)"]
RESOLVES = ["getaddrinfo (socket.py:974)", "create_connection (urllib3/util/connection.py:60)"]
PROXY = {"HTTPS_PROXY": "http://user:word@10.9.9.9:3128"}
IN_VAIN = "HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded: Network is unreachable"


def _asks(*, stack=(), peer: str = "", fds=(50,), **more) -> Bundle:
    files = [socket("10.0.0.2:5000", peer, state="SYN_SENT")] if peer else []
    told = {"phase": Phase.CONFIG, **more}
    return bundle(process(4000, "python", stack=stack, syscall="poll(0x1)", fds=fds, files=files, ppid=1), **told)


@pytest.mark.parametrize("told", [PROXY, {"HF_ENDPOINT": "http://10.9.9.9:3128/mirror"}])
def test_the_hub_is_asked_through_a_proxy_or_a_mirror(judge, told):
    asked = {"stack": HUB, "peer": "10.9.9.9:3128", "environment": told, "fds": ()}
    assert judge(_asks(**asked), "hub_network").word == "established"
    assert judge(_asks(**{**asked, "peer": "10.9.9.9:3129"}), "hub_network").finding is None
    assert judge(_asks(**{**asked, "stack": ["connect (app.py:3)"]}), "hub_network").finding is None


def test_whatever_the_hubs_code_waits_on_is_the_hub(judge):
    assert judge(_asks(stack=HUB, peer="10.9.9.9:9000"), "hub_network").word == "established"
    assert judge(_asks(stack=["load (app.py:3)"], peer="10.9.9.9:9000"), "hub_network").finding is None


def test_the_hubs_code_waits_for_the_resolver(judge):
    assert judge(_asks(stack=[*RESOLVES, *HUB]), "hub_network").word == "supported"
    assert judge(_asks(stack=[*RESOLVES, "main (serve.py:9)"]), "hub_network").finding is None


def test_a_question_that_comes_to_nothing_again_and_again(judge):
    told = {"log": [line(IN_VAIN, level="WARNING")]}
    assert judge(_asks(stack=HUB, **told), "hub_network").word == "supported"
    assert judge(_asks(stack=["load (app.py:3)"], **told), "hub_network").finding is None
    fetched = [folder("download", "/hub", bytes_=GB, grows=GB)]
    assert judge(_asks(stack=HUB, folders=fetched, **told), "hub_network").finding is None


def test_urls_lead_to_their_own_port_or_the_usual_one():
    scene = scene_of(bundle(rank(0)))
    assert list(web.ends(scene, "https://10.1.1.1/a")) == [("10.1.1.1", 443)]
    assert list(web.ends(scene, "10.1.1.1:88")) == [("10.1.1.1", 88)]
    assert list(web.ends(scene, "unknown.example:88")) == []
    assert list(web.ends(scene, "")) == []
