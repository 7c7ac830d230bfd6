"""Many scenarios: sweeps, searches over layouts, sensitivity."""
