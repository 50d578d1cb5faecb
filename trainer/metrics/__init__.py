"""Metrics of a run: measured, written as JSON lines, printed, and sent to other tools."""

from trainer.metrics.log import MetricsLog, open_metrics
from trainer.metrics.record import Recorder, SaveCosts, StepRecord
from trainer.metrics.step_timer import StepTimer, StepTimes

__all__ = ["MetricsLog", "Recorder", "SaveCosts", "StepRecord", "StepTimer", "StepTimes", "open_metrics"]
