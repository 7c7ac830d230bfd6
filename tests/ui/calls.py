"""What the tests ask of a worker; by its name, so that the other process can import it."""

import os
import time


def counted(most, note):
    """Count, and say in which process."""
    for number in range(most):
        note(number / most)
    return most, os.getpid()


def ended(code, note):
    """End the process halfway."""
    note(0.5)
    os._exit(code)


def endless(asked, note):
    """Work that ends only with its process."""
    del asked
    note(0.5)
    while True:
        time.sleep(0.1)


def endless_children(asked, note):
    """The same in a process of its own, as the pool of a validation has."""
    child = os.fork()
    endless((asked, child), note)
