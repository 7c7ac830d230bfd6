"""The app: pages that read state, ask the twin, and place figures. No formula lives here."""
