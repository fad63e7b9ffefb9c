"""Looking at sessions: status, report, analysis, insights, comparison, calibration."""
