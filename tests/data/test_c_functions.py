"""Functions and calls are found in C that is hard to read: every case says exactly which."""

import pytest

from runner.data.shared.c_functions import functions


def calls_in(source: str) -> dict[str, list[str]]:
    """Return the calls of each function, ascending; those of functions of one name are put together."""
    found: dict[str, set[bytes]] = {}
    for function in functions(source.encode()):
        found.setdefault(function.name.decode(), set()).update(function.calls())
    return {name: sorted(call.decode() for call in calls) for name, calls in found.items()}


CASES = {
    "comments": (
        """/* int hidden(void) { no(); } */
        int f(void) // int g(void) { no(); }
        { yes(); /* no(); // */ also(); /* a " quote */ third(); }""",
        {"f": ["also", "third", "yes"]},
    ),
    "strings and characters": (
        r"""int f(void) { print("no() { \" no(); } // /*"); char a = '"', b = '\'', c = '{'; yes("\\"); }
        int g(void) { "a" "b"; after(); }""",
        {"f": ["print", "yes"], "g": ["after"]},
    ),
    "lines that go on": ("int f\\\n(void) { lo\\\nud(); // comment \\\n no();\n yes(); }", {"f": ["loud", "yes"]}),
    "lines of Windows": ("#define A \\\r\n no(1)\r\nint f(void)\r\n{\r\n\tyes();\r\n}\r\n", {"f": ["yes"]}),
    "macros": (
        """#define LOOP(x) do { no(x); \\
        also_no(x) {
        #  define OTHER() no()
        int f(void) {
        #define LOCAL(x) no(x)
            LOCAL(yes(1)); }""",
        {"f": ["LOCAL", "yes"]},
    ),
    "nested calls": ("int f(int n) { a(b(c(1), d (2)), (e)(3)); }", {"f": ["a", "b", "c", "d"]}),
    "keywords": (
        """int f(int n) { if (n) while (n) for (;;) switch (n) { case (1): sizeof(n); typeof(n) x; return (n); }
        else do yes(); while (n); return also(); asm volatile("nop" : "=r"(n)); }""",
        {"f": ["also", "yes"]},
    ),
    "members and pointers": (
        """int f(struct ops *ops, int (*given)(int)) {
            int (*own)(int) = look_up(1); size_t (*other)(void);
            ops->open(1); ops . close(2); given(3); (*own)(4); own(5); other(); x = 1.0 * yes(ops->read(6));
        }""",
        {"f": ["look_up", "yes"]},
    ),
    "declarations in a function": (
        "int f(void) { extern int declared(int); struct a made(int); return called(1); }",
        {"f": ["called"]},
    ),
    "recursion": ("int f(int n) { return n ? f(n - 1) : 0; }", {"f": ["f"]}),
    "prototypes and data": (
        """int declared(int);
        struct list { int (*member)(void); };
        static const struct ops table = { .open = open_it, .size = SIZE(1) };
        static int numbers[] = {
        {
            NO(1)
        },
        };
        enum { A = B(1) };
        typedef struct { int a; } made;
        LIST_HEAD(things)
        struct other { int b; };
        int f(void) { yes(); }""",
        {"f": ["yes"]},
    ),
    "functions before C89": (
        """int declared(int);
        static int old(a, b)
            int a;
            char *b, c[3];
        { yes(a); }""",
        {"old": ["yes"]},
    ),
    "annotations": (
        """static __printf(2, 3) void a(const char *format, ...) { one(); }
        void b(struct l *l) __acquires(&l->lock) __releases(other) { two(); }
        __attribute__((weak)) int c(void) { three(); }
        EXPORT_SYMBOL(c)
        SEC("tc") int d(void) { four(); }""",
        {"a": ["one"], "b": ["two"], "c": ["three"], "d": ["four"]},
    ),
    "macros that define": (
        """SYSCALL_DEFINE3(read, unsigned int, fd, size_t, count) { return ksys_read(fd); }
        TEST_F(fixture, works) { EXPECT(go()); }
        TEST_F(fixture, fails) { EXPECT(stop()); }
        static inline void INIT_LIST_HEAD(struct list_head *list) { WRITE_ONCE(list->next, list); }""",
        {
            "SYSCALL_DEFINE3_read": ["ksys_read"],
            "TEST_F_fixture_works": ["EXPECT", "go"],
            "TEST_F_fixture_fails": ["EXPECT", "stop"],
            "INIT_LIST_HEAD": ["WRITE_ONCE"],
        },
    ),
    "a function that returns a pointer to one": (
        "static handler_t (*get(int n))(void) { yes(); }\nint (in_parentheses)(int n) { also(); }",
        {"get": ["yes"], "in_parentheses": ["also"]},
    ),
    "two heads, one body": (
        """#ifdef A
        int f(int a) {
        #else
        int f(void) {
            only_here();
        #endif
            shared();
        }
        int g(void) { next(); }""",
        {"f": ["only_here", "shared"], "g": ["next"]},
    ),
    "a condition in two branches": (
        """int f(int a) {
        #if defined(A)
            if (first(a)) {
        #elif B
            if (second(a)) {
        #else
            if (third(a)) {
        #endif
                inner();
            }
        #ifdef A
            {
        #endif
            after();
        #ifdef A
            }
        #endif
        }
        int g(void) { next(); }""",
        {"f": ["after", "first", "inner", "second", "third"], "g": ["next"]},
    ),
    "a parameter in a branch": (
        "int f(int a,\n#ifdef A\n int b,\n#endif\n int c)\n{\n yes(); }",
        {"f": ["yes"]},
    ),
    "code that is switched off": (
        """#if 0
        don't } } {
        #ifdef A
        int no(void) { no(); }
        #else
        #endif
        #else
        int f(void) { yes(); }
        #endif
        int g(void) { next(); }""",
        {"f": ["yes"], "g": ["next"]},
    ),
    "a brace that is never closed": (
        "int f(void)\n{\n\tif (a) {\n\tone();\n}\nint g(void)\n{\n\ttwo();\n}\n",
        {"f": ["one"], "g": ["two"]},
    ),
    "a brace too much": ("}\n} int f(void) { } } int g(void) { yes(); }", {"f": [], "g": ["yes"]}),
    "ends of conditions too much": ("#endif\n#else\nint f(void) { yes(); }\n#if A\n", {"f": ["yes"]}),
    "a comment without an end": ("int f(void) { yes(); } /* int g(void) { no(); }", {"f": ["yes"]}),
    "nothing": ("", {}),
}


@pytest.mark.parametrize("case", CASES)
def test_functions_and_their_calls(case: str) -> None:
    source, wanted = CASES[case]
    assert calls_in(source) == wanted


def test_names_are_those_of_head_and_body_without_keywords() -> None:
    (function,) = functions(b"static int f(struct page *page) { int n = page->count; g(n, MAX_N); return f(page); }")
    assert list(function.names()) == [b"page", b"n", b"count", b"g", b"MAX_N"]


@pytest.mark.parametrize(
    "piece", [b"(", b"{", b'"', b"'", b"/*", b"a ", b"a(", b"*", b"#if\n", b"\\\n", b"f(){", b"-.1"]
)
def test_time_is_linear_in_the_length(piece: bytes) -> None:
    """200,000 bytes of anything take seconds at most; quadratic time would take minutes."""
    functions(piece * (200_000 // len(piece)))
