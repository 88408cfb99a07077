"""What operators of a party's process need: logs and metrics, neither with a value of anybody's data."""

from securevfl.jobs.operations.fields import EVENTS, Fields
from securevfl.jobs.operations.logs import EventLog, LogNews, LogObserver, logging_to
from securevfl.jobs.operations.metrics import Metrics, metrics_port

__all__ = ["EVENTS", "EventLog", "Fields", "LogNews", "LogObserver", "Metrics", "logging_to", "metrics_port"]
