"""What programs may ask about the provider."""

from __future__ import annotations

from kjms._version import __version__

__all__ = ["ConnectionMetaData"]


class ConnectionMetaData:
    """What JMS programs may ask about the provider (JMS 2.0 §4.3.7)."""

    jms_version = "2.0"
    jms_major_version = 2
    jms_minor_version = 0
    jms_provider_name = "kjms"
    provider_version = __version__
    provider_major_version = int(__version__.split(".")[0])
    provider_minor_version = int(__version__.split(".")[1])

    def jmsx_property_names(self) -> list[str]:
        """Return the JMSX properties that are supported (JMS 2.0 §3.5.9)."""
        return ["JMSXGroupID", "JMSXGroupSeq", "JMSXDeliveryCount"]

    def __repr__(self) -> str:
        return f"<ConnectionMetaData: {self.jms_provider_name} {self.provider_version}, JMS {self.jms_version}>"
