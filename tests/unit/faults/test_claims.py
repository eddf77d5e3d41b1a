"""Two processes claim the same: the first claim in the registry's log counts."""

from __future__ import annotations

import pytest

from kjms import InvalidClientIDException
from tests.helpers import Desk


@pytest.mark.requirement("JMS-4.3.2-6")
def test_a_client_id_belongs_to_one_process(desk: Desk) -> None:
    """A second process with the same client id is refused while the first is connected."""
    desk.connect(is_apart=True, client_id="accounts")
    with pytest.raises(InvalidClientIDException, match="in use by another connection"):
        desk.connect(is_apart=True, client_id="accounts")
