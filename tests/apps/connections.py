"""connections.py - what clients share that check many connections at once."""
import threading


def check(count, connection, well):
    """Calls connection(0) to connection(count - 1), each in a thread of its own, and prints what they
    raised, or `well`. The program's exit status."""
    failures = []

    def run(seed):
        try:
            connection(seed)
        except (AssertionError, OSError) as e:
            failures.append(f"connection {seed}: {type(e).__name__}: {e}")

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    print("\n".join(failures) or well)
    return 1 if failures else 0
