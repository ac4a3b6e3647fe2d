"""When a host may be asked again.

Mercator's rule: a host is never asked twice at once, and after a transfer it is left alone for *factor*
times as long as the transfer took (Najork and Heydon 2001 use 10), within a lower and an upper bound.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Politeness:
    """How long to leave a host alone; all figures but *factor* are seconds."""

    factor: float = 10.0
    min_gap: float = 0.0
    max_gap: float = 60.0

    def gap(self, transfer: float) -> float:
        """Seconds between the end of a transfer that took *transfer* seconds and the next request."""
        return min(max(self.factor * max(transfer, 0.0), self.min_gap), max(self.max_gap, self.min_gap))

    def pause_after_crash(self, now: float, leased_at: float, last_seen: float) -> float:
        """Instant before which a host must not be asked after a process died unexpectedly.

        What the dead process did since its last commit is unknown, but bounded: it made no request later than
        *last_seen*, so no transfer that it still finished was longer than from the host's lease until then.

        Args:
            now: Instant of the restart.
            leased_at: Instant of the host's last committed lease; of the last commit, if none is known.
            last_seen: Latest instant at which the dead process may have been at work.
        """
        return now + self.gap(last_seen - leased_at)
