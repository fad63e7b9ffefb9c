"""First run and health of the installation."""
