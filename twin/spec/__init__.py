"""What a planner writes, section by section: frozen pydantic models with units."""
