"""Where from: one package per agent, each finding and decoding what that agent wrote."""
