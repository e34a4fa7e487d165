"""What the best blind guesser can reach on each pocket family: exact, by going through every allowed row of numbers.

The guesser knows its own half of the facts, the wording, the question and the distribution of the numbers. Given the numbers it
knows, its best answer is the most frequent one among the rows that agree with them; names and wording say nothing about numbers.
Run `python -m coterie.tasks.pocket_blind` to print the table that `pocket.BLIND_GUESS` holds (about a minute).
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator

from coterie.tasks.pocket_families import FAMILIES, Family, allowed, answer_of


def rows(family: Family) -> Iterator[tuple[int, ...]]:
    spans = (range(low, high + 1) for low, high in family.ranges)
    return (numbers for numbers in itertools.product(*spans) if allowed(family, numbers))


def blind_by_hand(family: Family) -> dict[tuple[int, ...], float]:
    """For each hand that a seat can be dealt (places of the facts it holds), the best share of right answers."""
    table = [(numbers, answer_of(family, numbers)) for numbers in rows(family)]
    places = range(len(family.ranges))
    shares = {}
    for hand in itertools.chain.from_iterable(itertools.combinations(places, size) for size in range(1, len(places))):
        seen: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        for numbers, answer in table:
            seen[tuple(numbers[i] for i in hand)][answer] += 1
        if any(len(counts) == 1 for counts in seen.values()):
            raise ValueError(f"{family.name}: facts {hand} can settle the answer")
        shares[hand] = sum(max(counts.values()) for counts in seen.values()) / len(table)
    return shares


def blind_guess(family: Family, seats: int = 2) -> float:
    """The mean over the ways in which the facts can be dealt to `seats` seats, all equally likely (`pocket.deal_among`). With two
    seats that is the plain mean over hands, since each hand is the other seat's complement."""
    shares = blind_by_hand(family)
    places = range(len(family.ranges))
    ways = [owners for owners in itertools.product(range(seats), repeat=len(places)) if len(set(owners)) == seats]
    return sum(shares[tuple(i for i in places if owners[i] == 0)] for owners in ways) / len(ways)


if __name__ == "__main__":
    for name, family in FAMILIES.items():
        by_hand = blind_by_hand(family)
        print(f'    "{name}": {sum(by_hand.values()) / len(by_hand):.4f},  # worst hand {max(by_hand.values()):.3f}', flush=True)
