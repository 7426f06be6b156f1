"""`host:port`: what is one, and that it is written as it is read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unweave.address import Address

HOSTS = st.from_regex(r"[a-z0-9.-]{1,12}", fullmatch=True) | st.ip_addresses().map(str)


@given(HOSTS, st.integers(0, 65535))
def test_what_is_written_is_read_again(host, port):
    address = Address(host, port)
    assert Address.parse(str(address)) == address
    assert str(address).startswith("[") == (":" in host)


NONE = ["", "host", "host:", ":80", "host:65536", "host:-1", "host:²", "::1:80", "[::1]", "a b:1"]


@pytest.mark.parametrize("text", [*NONE, "host:80\n", "[host]:80", "http://h:1"])
def test_what_is_no_address(text):
    assert Address.parse(text) is None
