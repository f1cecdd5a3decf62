"""Words that every MicroPython has in its flash, whatever the port: a name spelled so costs a board no memory.

From MicroPython's `py/`: those of `static_qstr_list` in makeqstrdata.py, which a `.mpy` names by their number, then others of the core
that the ports build with all of `MICROPY_CONFIG_ROM_LEVEL_EXTRA_FEATURES`. A word that a port had not would cost what any name costs.
"""

_WORDS = """
abs all any append args bool builtins bytearray bytecode bytes callable chr classmethod clear close const
copy count dict dir divmod end endswith eval exec extend find format from_bytes get getattr globals hasattr
hash id index insert int isalpha isdigit isinstance islower isspace issubclass isupper items iter join key
keys len list little locals lower lstrip main map micropython next object open ord pop popitem pow print
range read readinto readline remove replace repr reverse rfind rindex round rsplit rstrip self send sep set
setattr setdefault sort sorted split start startswith staticmethod step stop str strip sum super throw
to_bytes tuple type update upper value values write zip NoneType Ellipsis EOFError OSError KeyError
NameError TypeError IndexError ValueError Exception ImportError MemoryError LookupError SyntaxError
SystemExit RuntimeError OverflowError StopIteration BaseException GeneratorExit ArithmeticError
AssertionError AttributeError IndentationError KeyboardInterrupt ZeroDivisionError NotImplementedError e gc
io pi add big bin cos erf exp hex inf log max min nan oct ptr sin sub sys tan tau acos asin atan ceil cosh
erfc fabs fmod imag lock log2 math modf pack path peek ptr8 push real rect seek sinh sqrt tanh tell uint
utf8 acosh array ascii asinh atan2 atanh cmath deque errno expm1 float floor flush frexp gamma ioctl isinf
isnan ldexp log10 polar ptr16 ptr32 slice trunc union IOBase RingIO center decode enable encode filter
getter ignore length lgamma module setter signed struct unpack BytesIO abs_tol closure collect compile
complex default degrees delattr deleter disable discard fromhex indices isclose maxsize modules popleft
radians rel_tol version StringIO calcsize copysign fromkeys function getvalue isfinite issubset itemsize
iterable iterator kbd_intr keepends mem_free platform property register reversed schedule byteorder
dict_view enumerate errorcode factorial frozenset generator heap_lock isenabled mem_alloc opt_level
pack_into partition qstr_info stack_use threshold appendleft difference isdisjoint issuperset memoryview
namedtuple rpartition splitlines OrderedDict collections heap_unlock unpack_from UnicodeError bound_method
intersection NotImplemented ViperTypeError implementation print_exception difference_update
StopAsyncIteration intersection_update symmetric_difference symmetric_difference_update
"""
_ASKED = """
append close count default errno get ioctl irq key keys mount read readblocks readinto readline remove send
setblocking sync throw umount value write writeblocks args flush
"""
_FOREIGN = """
active add address bits block board busy call cancel close code config count digest done end feed find flush
frame function generator i2c id info input join led level listen load log n name next open output password
path ping poll prefer random rate read reset run rx scan send seq setup size ssid start state step stop
stream text tls tx value waiting write
"""
WORDS = tuple(_WORDS.split())
ASKED = frozenset(_ASKED.split())
"""Attributes that MicroPython itself, or its modules, look for on objects of others."""
FOREIGN = frozenset(_FOREIGN.split())
"""Names of the firmware's that objects of MicroPython's have, too, on some port."""
PARAMETERS = ("args", "key", "index", "object", "items", "little", "length", "bytecode")
"""Names for parameters, by their place."""
