"""Periodic messages: define, list, pause and remove them (``docs/periodic-messages.md``)."""

from __future__ import annotations

from kjms.schedule._schedules import Schedule, Schedules

__all__ = ["Schedule", "Schedules"]
