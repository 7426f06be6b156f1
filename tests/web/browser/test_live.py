"""The page over real agent processes: from the start to rest, an erasure, and its certificate."""

from tests.support.commands import run_command
from tests.support.processes import Processes
from unweave.web.live.network import NetworkSource

CODE = "right-code"


def flipped(character):
    """Another character of base64."""
    return b"A" if character != b"A" else b"B"


def test_a_network_is_watched_erased_and_proved(visit, shot, tmp_path):
    with Processes(tmp_path / "clinics", agents=4) as net:
        with visit(NetworkSource(net.root), code=CODE) as v:
            v.page.set_default_timeout(60_000)
            page = v.open()
            assert page.get_by_role("heading", name="clinics").is_visible()
            shot(page, "live-down")
            net.start()
            page.locator("#mark[data-state=rest]").wait_for()
            page.locator("#figures", has_text="Complete").wait_for()
            page.locator("#densities canvas").first.wait_for()
            for name in net.names:
                page.get_by_role("button", name=f"{name}: in, attested").wait_for()
            shot(page, "live-rest")

            page.get_by_role("button", name="a2: in, attested").click()
            page.get_by_role("dialog", name="a2").wait_for()
            shot(page, "live-agent", full=False)
            page.get_by_role("button", name="Erase data of this agent…").click()
            page.get_by_role("button", name="Show what will happen").click()
            page.get_by_role("button", name="Erase a2").click()
            page.get_by_label("Code", exact=True).fill(CODE)
            page.get_by_role("button", name="Continue").click()
            page.get_by_role("heading", name="a2: erased and certified").wait_for()
            v.forgive("401")
            with page.expect_download() as download:
                page.locator("#erase-certificate").click()
            file = tmp_path / download.value.suggested_filename
            download.value.save_as(file)
            page.keyboard.press("Escape")
            page.get_by_role("button", name="a2: erased").wait_for()
            shot(page, "live-erased")

            page.set_input_files("#verify-file", file)
            page.get_by_role("heading", name="The certificate is valid").wait_for()
            shot(page, "live-verified", full=False)
            page.keyboard.press("Escape")
            # Another character in the middle of the first signature.
            head, sign, tail = file.read_bytes().partition(b'"sig":"')
            other = tmp_path / "altered.json"
            other.write_bytes(head + sign + tail[:40] + flipped(tail[40:41]) + tail[41:])
            page.set_input_files("#verify-file", other)
            page.get_by_role("heading", name="The certificate is not valid").wait_for()
        network = ("--network", net.root / "network.toml")
        code, out, err = run_command("verify", file, *network)
        assert (code, err) == (0, "")
        assert "valid" in out
