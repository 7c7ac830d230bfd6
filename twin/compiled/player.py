"""The event player as loops over arrays: what `twin.compiled.build` compiles.

It does what `twin.engine.player`, `fluid` and `sms` say, operation by operation and in the same
order, floats included, so that both give the same nanoseconds. Nothing is allocated here. Arrays
come in three tables by type: `n` of 32-bit integers, `w` of 64-bit ones, `x` of floats. The names
below are places in these tables. A function uses numbers, the tables and functions above it.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import Final, TypeAlias

Integers: TypeAlias = Sequence[MutableSequence[int]]
Floats: TypeAlias = Sequence[MutableSequence[float]]

ROUNDING: Final = 1e-9
COMPUTE: Final = 0

# In `n`. Of the graph: by operation, edge, member of a rendezvous, flow of a bundle, crossing.
ROLE, STREAM, SMS, BUNDLE, GROUP, WAITS, AFTER, MEMBER, PATH, LINK = range(10)
# Of the state: by rendezvous; by operation; by link; by slot of a flow, and crossing of a slot.
ABSENT, RUNNING, LEFT, FINISHED, USERS, HEAD, TAIL = range(10, 17)
SLOT_PATH, SLOT_TURN, FREED, FOUND, NEXT, BEFORE = range(17, 23)
# Of the fair rates: sorted paths; by link; by crossing of these paths; of sets known already.
SORTED, TOUCHED, FIRST_USER, CROSSINGS, UNFIXED, USER, USER_CROSSING, KNOWN_PATH = range(23, 31)
INTEGERS: Final = 31
# In `w`. Of the graph, then of the state.
DURATION, FIRST_AFTER, FIRST_MEMBER, FIRST_FLOW, FIRST_CROSSING = range(5)
STATE, READY, START, END, RELEASED_BY, QUEUE_TIME, QUEUE_ORDER, QUEUE_ITEM = range(5, 13)
SLOT_OP, SLOT_UPDATED, SLOT_END, SLOT_DUE, SLOT_SEEN, LINK_SEEN, KNOWN = range(13, 20)
HELD, KERNEL_OP, KERNEL_SINCE, KERNEL_END, KERNEL_DUE = range(20, 25)
LONGS: Final = 25
# In `x`. Of the graph, then of the state.
SM_BOUND, BYTES, WEIGHT, CAPACITY, ALONE, CONTENTION = range(6)
SLOT_REMAINING, SLOT_RATE, KERNEL_LEFT, KERNEL_STRETCH = range(6, 10)
RATE, PATH_RATE, UNUSED, KNOWN_RATE = range(10, 14)
FLOATS: Final = 14
# In `w[STATE]`.
NOW, ORDER, QUEUED, QUEUE_SIZE, OPS, DONE, PAUSE, EVENTS, OVER = range(9)
FREE, FRESH, LOOK, LONGEST, SHARED, CROWDED, ALL_SMS, MOST_SMS = range(9, 17)
KNOWN_SIZE, POOL_SIZE, POOL_USED = range(17, 20)
STATES: Final = 20

ELAPSED, COMPUTED, ARRIVED = range(3)
"""Kinds of what is queued."""
PLAYED, PAUSED, OVERFLOWN = range(3)
"""Answers of `play`."""


def call(w: Integers, time: int, item: int) -> None:
    """Queue an item: by time, and of one instant in the order in which they were asked for."""
    state, times, orders, items = w[STATE], w[QUEUE_TIME], w[QUEUE_ORDER], w[QUEUE_ITEM]
    state[ORDER] += 1
    place, state[QUEUED] = state[QUEUED], state[QUEUED] + 1
    if place >= state[QUEUE_SIZE]:
        return  # `play` sees it
    while place > 0:
        parent = (place - 1) >> 1
        if times[parent] <= time:
            break
        times[place], orders[place], items[place] = times[parent], orders[parent], items[parent]
        place = parent
    times[place], orders[place], items[place] = time, state[ORDER], item


def pop(w: Integers) -> int:
    """Take the next item; the clock goes on to it."""
    state, times, orders, items = w[STATE], w[QUEUE_TIME], w[QUEUE_ORDER], w[QUEUE_ITEM]
    state[NOW], first = times[0], items[0]
    state[QUEUED] -= 1
    size = state[QUEUED]
    time, order, item = times[size], orders[size], items[size]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        other = child + 1
        if other < size and (
            times[other] < times[child]
            or (times[other] == times[child] and orders[other] < orders[child])
        ):
            child = other
        if times[child] > time or (times[child] == time and orders[child] > order):
            break
        times[place], orders[place], items[place] = times[child], orders[child], items[child]
        place = child
    times[place], orders[place], items[place] = time, order, item
    return first


def from_now(value: float) -> int:
    """A duration in whole nanoseconds, rounded up."""
    value -= ROUNDING
    whole = int(value)
    if whole < value:
        whole += 1
    return max(whole, 0)


def by_path(n: Integers, count: int) -> None:
    """Sort the first paths of `n[SORTED]` (Shell 1959, CACM 2(7))."""
    paths, gap = n[SORTED], count // 2
    while gap > 0:
        for place in range(gap, count):
            path, at = paths[place], place
            while at >= gap and paths[at - gap] > path:
                paths[at] = paths[at - gap]
                at -= gap
            paths[at] = path
        gap //= 2


def list_users(n: Integers, w: Integers, x: Floats, count: int) -> int:
    """List, by link, who of the sorted paths crosses it; how many links there are."""
    paths, first, links = n[SORTED], w[FIRST_CROSSING], n[LINK]
    touched, begins, crossings, unfixed = n[TOUCHED], n[FIRST_USER], n[CROSSINGS], n[UNFIXED]
    number = 0
    for flow in range(count):
        for crossing in range(first[paths[flow]], first[paths[flow] + 1]):
            link = links[crossing]
            if unfixed[link] == 0:
                touched[number] = link
                number += 1
            unfixed[link] += 1
    total = 0
    for place in range(number):
        link = touched[place]
        x[UNUSED][link] = x[CAPACITY][link]
        begins[link], crossings[link] = total, 0
        total += unfixed[link]
    for flow in range(count):
        x[RATE][flow] = -1.0
        for crossing in range(first[paths[flow]], first[paths[flow] + 1]):
            link = links[crossing]
            at = begins[link] + crossings[link]
            n[USER][at], n[USER_CROSSING][at] = flow, crossing
            crossings[link] += 1
    return number


def tightest(n: Integers, x: Floats, number: int) -> tuple[int, int, float]:
    """Of these links, how many are left that flows without a rate cross; the one whose fair share
    is the smallest, and that share."""
    touched, begins, rates = n[TOUCHED], n[FIRST_USER], x[RATE]
    share, least, kept = 0.0, -1, 0
    for place in range(number):
        link = touched[place]
        if n[UNFIXED][link] == 0:
            continue
        touched[kept] = link
        kept += 1
        total = 0.0
        for at in range(begins[link], begins[link] + n[CROSSINGS][link]):
            if rates[n[USER][at]] < 0.0:
                total += x[WEIGHT][n[USER_CROSSING][at]]
        fair = x[UNUSED][link] / total
        if least < 0 or fair < share or (fair == share and link < least):
            share, least = fair, link
    return kept, least, share


def fair_rates(n: Integers, w: Integers, x: Floats, count: int) -> None:
    """Max-min fair rate of a flow on each of the sorted paths, into `x[RATE]`."""
    paths, first, links, weights = n[SORTED], w[FIRST_CROSSING], n[LINK], x[WEIGHT]
    begins, crossings, rates = n[FIRST_USER], n[CROSSINGS], x[RATE]
    number = list_users(n, w, x, count)
    while True:
        number, least, share = tightest(n, x, number)
        if number == 0:
            break
        for at in range(begins[least], begins[least] + crossings[least]):
            flow = n[USER][at]
            if rates[flow] >= 0.0:
                continue
            rates[flow] = share
            for crossing in range(first[paths[flow]], first[paths[flow] + 1]):
                x[UNUSED][links[crossing]] -= share * weights[crossing]
                n[UNFIXED][links[crossing]] -= 1


def look_up(n: Integers, w: Integers, x: Floats, count: int) -> None:
    """Fair rates of the sorted paths, into `x[PATH_RATE]`; sets that came before are remembered."""
    state, paths, known, pool = w[STATE], n[SORTED], w[KNOWN], n[KNOWN_PATH]
    code = count
    for flow in range(count):
        code = (code * 1000003 + paths[flow]) & 0xFFFFFFFFFFFF
    place = code % state[KNOWN_SIZE]
    while known[place] > 0:
        begin = known[place]
        same = pool[begin - 1] == count
        flow = 0
        while same and flow < count:
            same = pool[begin + flow] == paths[flow]
            flow += 1
        if same:
            for flow in range(count):
                x[PATH_RATE][paths[flow]] = x[KNOWN_RATE][begin + flow]
            return
        place = (place + 1) % state[KNOWN_SIZE]
    fair_rates(n, w, x, count)
    for flow in range(count):
        x[PATH_RATE][paths[flow]] = x[RATE][flow]
    if state[POOL_USED] + count + 1 > state[POOL_SIZE]:  # forget all
        for at in range(state[KNOWN_SIZE]):
            known[at] = 0
        state[POOL_USED] = 0
        return
    begin = state[POOL_USED] + 1
    known[place] = begin
    pool[begin - 1] = count
    for flow in range(count):
        pool[begin + flow] = paths[flow]
        x[KNOWN_RATE][begin + flow] = x[RATE][flow]
    state[POOL_USED] += count + 1


def aim(n: Integers, w: Integers, x: Floats, slot: int) -> None:
    """Say when a flow ends at its new rate, and see to a timer by then."""
    now = w[STATE][NOW]
    end = now + from_now(x[SLOT_REMAINING][slot] / x[SLOT_RATE][slot])
    w[SLOT_END][slot] = end
    if w[SLOT_DUE][slot] < now or end < w[SLOT_DUE][slot]:
        w[SLOT_DUE][slot] = end
        call(w, end, ((n[SLOT_TURN][slot] << 32) + slot) * 4 + ARRIVED)


def notice(w: Integers, n: Integers, slot: int, count: int) -> int:
    """Put a flow on the list of those found, unless it is there; their number."""
    if w[SLOT_SEEN][slot] == w[STATE][LOOK]:
        return count
    w[SLOT_SEEN][slot] = w[STATE][LOOK]
    n[FOUND][count] = slot
    return count + 1


def share(n: Integers, w: Integers, x: Floats, count: int) -> None:
    """Give the flows found, and all that share links with them or with those that do, their fair
    rates, and move their ends accordingly."""
    state, found, now = w[STATE], n[FOUND], w[STATE][NOW]
    at = 0
    while at < count:
        path = n[SLOT_PATH][found[at]]
        for crossing in range(w[FIRST_CROSSING][path], w[FIRST_CROSSING][path + 1]):
            link = n[LINK][crossing]
            if n[USERS][link] > 1 and w[LINK_SEEN][link] != state[LOOK]:
                w[LINK_SEEN][link] = state[LOOK]
                there = n[HEAD][link]
                while there >= 0:
                    count = notice(w, n, there // state[LONGEST], count)
                    there = n[NEXT][there]
        at += 1
    if count == 1:
        path = n[SLOT_PATH][found[0]]
        x[PATH_RATE][path] = x[ALONE][path]
    else:
        for at in range(count):
            n[SORTED][at] = n[SLOT_PATH][found[at]]
        by_path(n, count)
        look_up(n, w, x, count)
    for at in range(count):
        slot = found[at]
        rate = x[PATH_RATE][n[SLOT_PATH][slot]]
        if rate != x[SLOT_RATE][slot]:
            x[SLOT_REMAINING][slot] -= x[SLOT_RATE][slot] * (now - w[SLOT_UPDATED][slot])
            w[SLOT_UPDATED][slot], x[SLOT_RATE][slot] = now, rate
            aim(n, w, x, slot)


def begin_flow(n: Integers, w: Integers, x: Floats, op: int, flow: int) -> None:
    """Put the bytes of one of an operation's flows on their path."""
    state, path = w[STATE], n[PATH][flow]
    if state[FREE] > 0:
        state[FREE] -= 1
        slot = n[FREED][state[FREE]]
    else:
        slot = state[FRESH]
        state[FRESH] += 1
    n[SLOT_PATH][slot] = path
    w[SLOT_OP][slot], w[SLOT_UPDATED][slot], w[SLOT_DUE][slot] = op, state[NOW], -1
    x[SLOT_REMAINING][slot], x[SLOT_RATE][slot] = x[BYTES][flow], 0.0
    met = False
    there = slot * state[LONGEST]
    for crossing in range(w[FIRST_CROSSING][path], w[FIRST_CROSSING][path + 1]):
        link = n[LINK][crossing]
        n[BEFORE][there], n[NEXT][there] = -1, -1
        if n[USERS][link] > 0:
            met = True
            n[BEFORE][there] = n[TAIL][link]
            n[NEXT][n[TAIL][link]] = there
        else:
            n[HEAD][link] = there
        n[TAIL][link] = there
        n[USERS][link] += 1
        there += 1
    if met:
        state[SHARED] = 1
        state[LOOK] += 1
        share(n, w, x, notice(w, n, slot, 0))
    else:
        x[SLOT_RATE][slot] = x[ALONE][path]
        aim(n, w, x, slot)


def end_flow(n: Integers, w: Integers, x: Floats, slot: int) -> None:
    """Take a flow off its links; its neighbours share what it leaves."""
    state, path = w[STATE], n[SLOT_PATH][slot]
    state[LOOK] += 1
    count = 0
    there = slot * state[LONGEST]
    for crossing in range(w[FIRST_CROSSING][path], w[FIRST_CROSSING][path + 1]):
        link = n[LINK][crossing]
        before, after = n[BEFORE][there], n[NEXT][there]
        if before >= 0:
            n[NEXT][before] = after
        else:
            n[HEAD][link] = after
        if after >= 0:
            n[BEFORE][after] = before
        else:
            n[TAIL][link] = before
        n[USERS][link] -= 1
        there += 1
        other = n[HEAD][link]
        while other >= 0:
            count = notice(w, n, other // state[LONGEST], count)
            other = n[NEXT][other]
    n[SLOT_TURN][slot] += 1
    n[FREED][state[FREE]] = slot
    state[FREE] += 1
    if count > 0:
        share(n, w, x, count)


# SMs: `twin.engine.sms`.


def pace(w: Integers, x: Floats, role: int) -> None:
    """Set the pace of a role's kernel, and when it ends."""
    state, held, op = w[STATE], w[HELD][role], w[KERNEL_OP][role]
    stretch = 1.0
    if held:
        state[SHARED] = 1
        bound, most = x[SM_BOUND][op], state[MOST_SMS]
        left = 1.0 - min(held, most) / state[ALL_SMS]
        stretch = (bound / left + 1.0 - bound) / (1.0 - x[CONTENTION][role])
    x[KERNEL_STRETCH][role] = stretch
    end = state[NOW] + from_now(x[KERNEL_LEFT][role] * stretch)
    w[KERNEL_END][role] = end
    if w[KERNEL_DUE][role] < state[NOW] or end < w[KERNEL_DUE][role]:
        w[KERNEL_DUE][role] = end
        call(w, end, op * 4 + COMPUTED)


def compute(n: Integers, w: Integers, x: Floats, op: int) -> None:
    """Start a kernel on a role that communication may slow."""
    role = n[ROLE][op]
    w[KERNEL_OP][role], w[KERNEL_SINCE][role], w[KERNEL_DUE][role] = op, w[STATE][NOW], -1
    x[KERNEL_LEFT][role] = float(w[DURATION][op])
    pace(w, x, role)


def hold(w: Integers, x: Floats, role: int, sms: int) -> None:
    """Communication on a role takes so many more SMs, or gives them back."""
    now = w[STATE][NOW]
    w[HELD][role] += sms
    if w[KERNEL_OP][role] >= 0:
        x[KERNEL_LEFT][role] -= (now - w[KERNEL_SINCE][role]) / x[KERNEL_STRETCH][role]
        w[KERNEL_SINCE][role] = now
        pace(w, x, role)


# Operations: `twin.engine.player`.


def over(n: Integers, w: Integers, op: int) -> None:
    """A member of a collective is done when all are."""
    group, state = n[GROUP][op], w[STATE]
    if group < 0:
        n[FINISHED][state[OVER]] = op
        state[OVER] += 1
        return
    n[RUNNING][group] -= 1
    if n[RUNNING][group]:
        return
    for place in range(w[FIRST_MEMBER][group], w[FIRST_MEMBER][group + 1]):
        n[FINISHED][state[OVER]] = n[MEMBER][place]
        state[OVER] += 1


def transfer(n: Integers, w: Integers, x: Floats, op: int) -> None:
    """Put all bytes of an operation on their paths."""
    bundle = n[BUNDLE][op]
    if bundle < 0:
        over(n, w, op)
        return
    begin, end = w[FIRST_FLOW][bundle], w[FIRST_FLOW][bundle + 1]
    n[LEFT][op] = end - begin
    for flow in range(begin, end):
        begin_flow(n, w, x, op, flow)


def begin(n: Integers, w: Integers, x: Floats, op: int) -> None:
    """Start an operation."""
    state, duration = w[STATE], w[DURATION][op]
    w[START][op] = state[NOW]
    if state[CROWDED]:
        if n[SMS][op]:
            hold(w, x, n[ROLE][op], n[SMS][op])
        elif duration and n[STREAM][op] == COMPUTE:
            compute(n, w, x, op)
            return
    if duration:
        call(w, state[NOW] + duration, op * 4 + ELAPSED)
    else:
        transfer(n, w, x, op)


def release(n: Integers, w: Integers, x: Floats, op: int, cause: int) -> None:
    """The last thing that an operation waited for has ended."""
    w[READY][op] = w[STATE][NOW]
    w[RELEASED_BY][op] = cause
    group = n[GROUP][op]
    if group < 0:
        begin(n, w, x, op)
        return
    n[ABSENT][group] -= 1
    if n[ABSENT][group] == 0:
        for place in range(w[FIRST_MEMBER][group], w[FIRST_MEMBER][group + 1]):
            begin(n, w, x, n[MEMBER][place])


def settle(n: Integers, w: Integers, x: Floats) -> None:
    """End what is over and start what that releases, until this instant has nothing more to
    give."""
    state = w[STATE]
    while state[OVER] > 0:
        state[OVER] -= 1
        op = n[FINISHED][state[OVER]]
        w[END][op] = state[NOW]
        state[DONE] += 1
        if state[CROWDED] and n[SMS][op]:
            hold(w, x, n[ROLE][op], -n[SMS][op])
        for place in range(w[FIRST_AFTER][op], w[FIRST_AFTER][op + 1]):
            after = n[AFTER][place]
            n[WAITS][after] -= 1
            if n[WAITS][after] == 0:
                release(n, w, x, after, op)


def elapse(n: Integers, w: Integers, x: Floats, item: int) -> None:
    """What was queued has come."""
    state, now, kind, which = w[STATE], w[STATE][NOW], item & 3, item >> 2
    if kind == ELAPSED:
        state[EVENTS] += 1
        transfer(n, w, x, which)
    elif kind == COMPUTED:
        role = n[ROLE][which]
        if w[KERNEL_OP][role] != which or w[KERNEL_DUE][role] != now:
            return  # an earlier timer has taken over
        if w[KERNEL_END][role] > now:  # it has become slower since
            w[KERNEL_DUE][role] = w[KERNEL_END][role]
            call(w, w[KERNEL_END][role], item)
            return
        w[KERNEL_OP][role] = -1
        state[EVENTS] += 1
        over(n, w, which)
    else:
        slot, turn = which & 0xFFFFFFFF, which >> 32
        if n[SLOT_TURN][slot] != turn or w[SLOT_DUE][slot] != now:
            return
        if w[SLOT_END][slot] > now:
            w[SLOT_DUE][slot] = w[SLOT_END][slot]
            call(w, w[SLOT_END][slot], item)
            return
        op = w[SLOT_OP][slot]
        end_flow(n, w, x, slot)
        state[EVENTS] += 1
        n[LEFT][op] -= 1
        if n[LEFT][op] > 0:
            return
        over(n, w, op)
    settle(n, w, x)


def play(n: Integers, w: Integers, x: Floats) -> int:
    """Play until nothing is left to happen, so many operations are done, or the queue is too
    short."""
    state = w[STATE]
    if state[ORDER] == 0 and state[DONE] == 0:
        for op in range(state[OPS]):
            if n[WAITS][op] == 0:
                release(n, w, x, op, -1)
        settle(n, w, x)
    while 0 < state[QUEUED] <= state[QUEUE_SIZE]:
        if state[DONE] >= state[PAUSE]:
            return PAUSED
        elapse(n, w, x, pop(w))
    return OVERFLOWN if state[QUEUED] > 0 else PLAYED
