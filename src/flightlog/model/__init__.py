"""What is: frozen values and errors. No I/O, no clock, no environment."""
