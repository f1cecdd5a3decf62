# Runs firmware test files on MicroPython: `micropython tests/firmware/run.py FILE...`.
# Prints one line per failure or skip and `N passed, N failed, N skipped` at the end; the exit code is the number that failed.
import sys

_here = sys.path[0] or "."
for _folder in (_here, _here + "/../../boards/sim", _here + "/../../firmware"):
    sys.path.insert(0, _folder)

from support import SkipTest  # noqa: E402


def run(path, only=None):
    passed = failed = skipped = 0
    name = path.split("/")[-1][:-3]
    module = __import__(name)
    for key in sorted(dir(module)):
        test = getattr(module, key)
        if not key.startswith("test_") or not callable(test) or (only and only != key):
            continue
        try:
            test()
            passed += 1
        except SkipTest as reason:
            skipped += 1
            print("SKIP", name + "." + key + ":", reason)
        except Exception as error:
            failed += 1
            print("FAIL", name + "." + key)
            sys.print_exception(error)
    return passed, failed, skipped


total = [0, 0, 0]
for argument in sys.argv[1:]:
    file, _, only = argument.partition("::")
    for index, count in enumerate(run(file, only)):
        total[index] += count
print(f"{total[0]} passed, {total[1]} failed, {total[2]} skipped")
sys.exit(1 if total[1] or not total[0] + total[2] else 0)
