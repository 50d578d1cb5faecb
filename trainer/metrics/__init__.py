"""The numbers of a run: measured, written as JSON lines, shown to people, passed on to other tools."""

from trainer.metrics.log import MetricsLog, open_metrics
from trainer.metrics.meter import Meter, Spent
from trainer.metrics.record import Recorder, StepRecord

__all__ = ["Meter", "MetricsLog", "Recorder", "Spent", "StepRecord", "open_metrics"]
