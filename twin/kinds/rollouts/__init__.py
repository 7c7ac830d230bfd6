"""Rollouts: requests of many lengths on inference engines, simulated one by one.

Engines are stepped by events (who joins, who is done), not by tokens; a request's turns, its
environment, the memory of its engine and the end of an iteration are events of one clock."""
