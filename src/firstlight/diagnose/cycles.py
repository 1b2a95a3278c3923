"""Cycles of a directed graph: Tarjan's strongly connected components, without recursion. Pure."""

from collections.abc import Iterator, Mapping, Sequence


def cycles(after: Mapping[str, Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """One cycle through each strongly connected component of more than one node, or of one that points at itself."""
    return tuple(_around(part, after) for part in components(after) if _turns(part, after))


def components(after: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, ...]]:
    """The strongly connected components, in the order in which they are done with."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    for root in after:
        if root in number:
            continue
        work = [(root, iter(after[root]))]
        number[root] = low[root] = len(number)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, rest = work[-1]
            further = next((one for one in rest if one not in number or one in on_stack), None)
            if further is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    yield _popped(stack, on_stack, node)
            elif further in number:
                low[node] = min(low[node], number[further])
            else:
                work.append((further, iter(after.get(further, ()))))
                number[further] = low[further] = len(number)
                stack.append(further)
                on_stack.add(further)


def _popped(stack: list[str], on_stack: set[str], node: str) -> tuple[str, ...]:
    part: list[str] = []
    while not part or part[-1] != node:
        part.append(stack.pop())
    on_stack.difference_update(part)
    return tuple(reversed(part))


def _turns(part: tuple[str, ...], after: Mapping[str, Sequence[str]]) -> bool:
    return len(part) > 1 or part[0] in after.get(part[0], ())


def _around(part: tuple[str, ...], after: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Follow the edges inside a component from its first node until one is met again: a cycle, in order."""
    inside = set(part)
    path: list[str] = []
    place: dict[str, int] = {}
    node = part[0]
    while node not in place:
        place[node] = len(path)
        path.append(node)
        node = next(one for one in after[node] if one in inside)
    return tuple(path[place[node] :])
