"""What operators of a party's process need: logs and metrics, neither with a value of anybody's data."""

from securevfl.jobs.operations.fields import EVENTS, Fields
from securevfl.jobs.operations.logs import EventLog, LogNews, LogObserver, logging_to
from securevfl.jobs.operations.metrics import Metrics, metrics_port
from securevfl.jobs.operations.process import Operating, keep_to_quota, operating, stopping

__all__ = [
    "EVENTS",
    "EventLog",
    "Fields",
    "LogNews",
    "LogObserver",
    "Metrics",
    "Operating",
    "keep_to_quota",
    "logging_to",
    "metrics_port",
    "operating",
    "stopping",
]
