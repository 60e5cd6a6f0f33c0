"""Find the functions of a C source and the functions that they call, without a compiler and without its settings.

What counts, in this order:

- Lines that end in a backslash are joined. Comments, strings and characters are left out, and so are lines of the
  preprocessor, whose macros have no functions and no calls. Code between `#if 0` and its `#else` or `#endif` is a
  comment, too.
- All other branches of an `#if` are read. Each begins where the `#if` began, in the same braces, and what follows the
  `#endif` goes on where the first of them ended. So a brace that several branches open is opened once.
- A function is a name with parentheses before a brace that is in no other brace, with or without declarations of its
  parameters between them, as before C89. Annotations such as `__acquires(lock)` are no names. A macro in capitals that
  defines functions, such as `SYSCALL_DEFINE3(read, ...)` or `TEST_F(fixture, test)`, gives the name with the names
  among its first two arguments. A `}` at the beginning of a line ends every brace.
- A call is a name before a parenthesis in the braces of a function. Names that are macros count, because the code
  calls both alike. Keywords such as `if` and `sizeof` do not count. Neither do members (`ops->open()`) and names that
  the function declares as its parameters or as pointers (`(*open)()`), because it is not known what they call, nor a
  name after another name, which is a declaration.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

KEYWORDS = frozenset(
    b"auto break case char const continue default do double else enum extern float for goto if inline int long register"
    b" restrict return short signed sizeof static struct switch typedef union unsigned void volatile while bool"
    b" _Alignas _Alignof _Atomic _Bool _Generic _Noreturn _Static_assert static_assert _Thread_local alignof asm typeof"
    b" typeof_unqual __alignof __alignof__ __asm __asm__ __attribute __attribute__ __auto_type __const __const__"
    b" __extension__ __inline __inline__ __label__ __restrict __restrict__ __signed__ __typeof __typeof__ __volatile"
    b" __volatile__".split()
)
_ANNOTATIONS = KEYWORDS | frozenset(
    b"__acquires __aligned __alloc_size __assume_aligned __attribute_const__ __cond_acquires __cond_releases __diag"
    b" __error __format_arg __malloc __must_hold __must_hold_shared __nocf_check __no_sanitize __nonnull __printf"
    b" __releases __scanf __section __target __warning SEC".split()
)
_BEFORE_A_CALL = frozenset((b"return", b"else", b"do", b"case", b"goto"))
_NAME = rb"[A-Za-z_]\w*+"

# Possessive repetitions keep every pattern linear in the length of the source.
NO_CODE = re.compile(
    rb"//[^\n]*+|/\*(?:[^*]++|\*(?!/))*+(?:\*/)?+"  # comments; one without an end reaches to that of the file
    rb'|"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"?+'  # strings and characters; one without an end reaches to that of the line
    rb"|'[^'\\\n]*+(?:\\.[^'\\\n]*+)*+'?+"
)
_STANDS_FOR = {ord("/"): b" ", ord('"'): b'""', ord("'"): b"0"}
_BOUNDARY = re.compile(rb"[{}]|\n[ \t]*+#[^\n]*+")
_CONDITION = re.compile(rb"\s*+#\s*+(if|ifdef|ifndef|elif|else|endif)\b\s*+(.*+)")
_INNERMOST = re.compile(rb"\([^()]*+\)")
_GROUP = b"\x01"  # stands for parentheses and all within
_BEFORE_GROUP = re.compile(rb"\b(" + _NAME + rb")\s*+\x01")
_NAME_IN_GROUP = re.compile(rb"\(\s*+\**+\s*+(" + _NAME + rb")\s*+[()]")
_OLD_DECLARATIONS = re.compile(rb"\s*+(?:[\w\s*,\[\]]++;)++\s*+")
_ANNOTATIONS_ONLY = re.compile(rb"[\w\s\x01]*+")
_TYPE = re.compile(rb"\b(?:struct|union|enum)\b")
_CALL = re.compile(rb"(?:(->|\.)\s*+|\b(" + _NAME + rb")\s++)?\b(" + _NAME + rb")\s*+\((?!\s*+\*[\w\s*]*+\)\s*+\()")
_POINTER = re.compile(rb"\(\s*+\*++\s*+(?:const\s++)?+(" + _NAME + rb")\s*+\)\s*+\(")
NAMES = re.compile(rb"\b" + _NAME)


@dataclass
class Function:
    """Hold a function: its name, what stands before its brace, and the pieces of code in its braces."""

    name: bytes
    head: bytes
    pieces: list[bytes] = field(default_factory=list)

    def calls(self) -> set[bytes]:
        """Return the names of the functions that it calls."""
        body = b"".join(self.pieces)
        found = {
            name
            for member, before, name in _CALL.findall(body)
            if not member and name not in KEYWORDS and (not before or before in _BEFORE_A_CALL)
        }
        if found:
            found -= {*NAMES.findall(self.head)} - {self.name}
            found.difference_update(_POINTER.findall(body))
        return found

    def names(self) -> dict[bytes, None]:
        """Return the names before and in its braces as they first occur, without its own and without keywords."""
        found = dict.fromkeys(NAMES.findall(self.head + b"".join(self.pieces)))
        return {name: None for name in found if name not in KEYWORDS and name != self.name}


@dataclass(frozen=True)
class _State:
    """Say where in the code a place is: in how many braces, in which function, and after what beginning of one."""

    depth: int = 0
    function: Function | None = None
    head: bytes = b""


@dataclass
class _Branches:
    """Remember what an `#if` needs at its other branches and at its end."""

    start: _State
    is_code: bool  # around it
    first_end: _State | None = None


def joined(source: bytes) -> bytes:
    """Return a source with LF as the end of lines, of which those that go on after a backslash are joined."""
    return source.replace(b"\r\n", b"\n").replace(b"\\\n", b"")


def functions(source: bytes) -> list[Function]:
    """Return the functions of a C source in their order; a name may occur several times, as in branches of `#if`."""
    text = b"\n" + NO_CODE.sub(lambda match: _STANDS_FOR[match[0][0]], joined(source))
    found: list[Function] = []
    state, is_code, open_ifs, last = _State(), True, list[_Branches](), 0
    for match in _BOUNDARY.finditer(text):
        piece, last, mark = text[last : match.start()], match.end(), match[0]
        if is_code:
            if state.function is not None:
                state.function.pieces += (piece, mark) if mark in b"{}" else (piece,)
            elif state.depth == 0:
                state = _State(head=_last_statement(state.head + piece))
        if mark == b"{" and is_code:
            function = state.function
            if state.depth == 0 and (name := _defined_name(state.head)) is not None:
                function = Function(name=name, head=state.head)
                found.append(function)
            state = _State(depth=state.depth + 1, function=function)
        elif mark == b"}" and is_code:
            at_margin = text[match.start() - 1] == ord("\n")
            depth = 0 if at_margin else max(0, state.depth - 1)
            state = _State(depth=depth, function=state.function if depth else None)
        elif (condition := _CONDITION.match(mark)) is not None:
            state, is_code = _after_condition(condition, state, is_code, open_ifs)
    return found


def _after_condition(
    condition: re.Match[bytes], state: _State, is_code: bool, open_ifs: list[_Branches]
) -> tuple[_State, bool]:
    """Return the state after a line of the preprocessor, and whether code follows; `open_ifs` is kept up to date."""
    word, value = condition.groups()
    if word in (b"if", b"ifdef", b"ifndef"):
        open_ifs.append(_Branches(start=state, is_code=is_code))
        return state, is_code and not (word == b"if" and value.strip() == b"0")
    if not open_ifs:
        return state, is_code
    branches = open_ifs[-1]
    if is_code and branches.first_end is None:
        branches.first_end = state
    if word == b"endif":
        open_ifs.pop()
        return branches.first_end or state, branches.is_code
    return branches.start, branches.is_code


def _last_statement(code: bytes) -> bytes:
    """Return the code after the last semicolon before its last parenthesis, or after the last one if it has none."""
    closed = code.rfind(b")")
    return code[code.rfind(b";", 0, closed if closed >= 0 else None) + 1 :]


def _defined_name(head: bytes) -> bytes | None:
    """Return the name of the function that begins so before its brace, None if no function does."""
    flat, count = head, 1
    while count:
        flat, count = _INNERMOST.subn(_GROUP, flat)
    if _GROUP not in flat or b"(" in flat or b")" in flat or b"=" in flat:
        return None
    groups = [match for match in _BEFORE_GROUP.finditer(flat) if match[1] not in _ANNOTATIONS]
    if (returns_pointer := re.search(_GROUP + rb"\s*+" + _GROUP, flat)) is not None:  # int (*get(int number))(void)
        inner = _NAME_IN_GROUP.search(head)
        name, end = (inner[1] if inner is not None else None), returns_pointer.end()
    else:
        name, end = (groups[-1][1], groups[-1].end()) if groups else (None, 0)
    rest = flat[end:]
    is_old = _OLD_DECLARATIONS.fullmatch(rest) is not None
    if name is None or not (is_old or (_ANNOTATIONS_ONLY.fullmatch(rest) and not _TYPE.search(rest))):
        return None
    return b"_".join((name, *_first_arguments(head, name))) if name.isupper() else name


def _first_arguments(head: bytes, name: bytes) -> Iterator[bytes]:
    """Yield the first two arguments of a macro up to the first that is more than a name."""
    inside = head[head.rfind(name) + len(name) :].lstrip()[1:]
    for argument in re.split(rb"[,()]", inside, maxsplit=2)[:2]:
        if not NAMES.fullmatch(argument.strip()) or argument.strip() in KEYWORDS:
            return
        yield argument.strip()
