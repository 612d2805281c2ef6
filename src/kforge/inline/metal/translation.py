"""Translates preprocessed Metal to C++ that clang compiles with the headers in `include`.

Metal is C++14 with additional words and attributes. The headers define most of them. What headers cannot express is
rewritten here: attributes, swizzles, literals of half precision, variables in threadgroup memory, function constants,
and instances of templates. Line numbers stay the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from kforge.inline.metal import pointers
from kforge.inline.metal.kernels import Attribute, KernelFunction, Parameter, attributes, read_parameters
from kforge.inline.metal.text import SOURCE, Text, refuse, split

_BANNED = frozenset(
    {
        "double",
        "new",
        "delete",
        "try",
        "catch",
        "throw",
        "virtual",
        "dynamic_cast",
        "typeid",
        "thread_local",
        "goto",
        "asm",
    }
)
_SWIZZLE = re.compile(r"[xyzw]{2,4}$|[rgba]{2,4}$")
_COMPONENTS = {
    **{letter: place for place, letter in enumerate("xyzw")},
    **{letter: place for place, letter in enumerate("rgba")},
}
_HALF = re.compile(r"((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(h|H|bf|BF)$")
_ASSIGNMENTS = frozenset("+-*/%&|^")
_BEFORE_STATEMENT = frozenset({"", ";", "{", "}", ")", ":"})
_NO_VARIABLES = frozenset(
    {
        "template",
        "using",
        "typedef",
        "struct",
        "class",
        "union",
        "enum",
        "namespace",
        "static_assert",
        "extern",
        "friend",
    }
)
MAX_THREADS = 1024
_GRAPHICS = frozenset({"vertex", "fragment", "mesh", "object"})


@dataclass(frozen=True)
class FunctionConstant:
    """A function constant of a Metal source: its name, and the index by which a launch sets it."""

    name: str
    index: int


@dataclass
class Translation:
    """The C++ text of a Metal source, its kernels, and its function constants."""

    text: str = ""
    kernels: list[KernelFunction] = field(default_factory=list)
    constants: list[FunctionConstant] = field(default_factory=list)
    has_atomics: bool = False
    asks_for_constants: bool = False
    """Whether the source itself asks whether a function constant has a value."""


@dataclass(frozen=True)
class _Function:
    """A kernel as the source defines it. If it is a template, only its instances can be launched."""

    path: tuple[str, ...]
    line: int
    parameters: tuple[Parameter, ...]
    max_threads: int
    template: bool
    body: tuple[int, int]
    """Indices of its first and last word."""


def translate(source: str) -> Translation:
    """Return the C++ text, and facts about its kernels and function constants.

    Raises CompileError, in the form of a compiler's message, for errors that clang would not find with these headers.
    """
    return _Translator(Text.read(source)).run()


class _Translator:
    """Translates one source: goes through its declarations and collects edits of its text."""

    def __init__(self, text: Text) -> None:
        self._text = text
        self._found = Translation()
        self._functions: dict[str, _Function] = {}
        self._instances: list[tuple[str, str, int, tuple[str, ...]]] = []
        self._members = pointers.member_names(text, _SWIZZLE)
        self._keys = 0

    def run(self) -> Translation:
        text, found = self._text, self._found
        pointers.check(text)
        self._scope(0, len(text), ())
        self._expressions()
        words = {word.text for word in text.words}
        found.has_atomics = any(word.startswith("atomic") for word in words)
        found.asks_for_constants = "is_function_constant_defined" in words
        self._name_kernels()
        found.text = text.result() + "\n" + "".join(self._entries())
        return found

    # --- declarations ------------------------------------------------------------------------------------------

    def _scope(self, position: int, end: int, path: tuple[str, ...]) -> None:
        """Translate the declarations of a file or a namespace."""
        text = self._text
        while position < end:
            stop, has_body = self._statement(position, end)
            after = text.closing(stop) + 1 if has_body else stop + 1
            words = text.texts(position, stop)
            if words[:1] == ["namespace"] and has_body:
                self._scope(stop + 1, after - 1, (*path, *(word for word in words[1:] if word not in ("::", "inline"))))
            else:
                self._declaration(position, stop, after, path, has_body=has_body)
            position = after

    def _statement(self, position: int, end: int) -> tuple[int, bool]:
        """Return where the head of a declaration ends, at its `;` or `{`, and whether a body follows."""
        text = self._text
        while position < end:
            word = text.at(position)
            if word == ";":
                return position, False
            if word == "{":
                return position, True
            position = text.closing(position) + 1 if word in ("(", "[") else position + 1
        return end, False

    def _declaration(self, start: int, stop: int, after: int, path: tuple[str, ...], *, has_body: bool) -> None:
        text = self._text
        words = text.texts(start, stop)
        given = attributes(text, start, stop)
        names = {one.name for one in given}
        for word in _GRAPHICS & ({words[0]} if words else set()) | _GRAPHICS & names:
            text.refuse(start, f"'{word}' functions are not emulated: only compute kernels are")
        is_kernel = "kernel" in words or "kernel" in names
        if words[:1] == ["template"] and words[1:2] != ["<"]:
            self._instance(start, stop, path, next((one.argument for one in given if one.name == "host_name"), ""))
            return
        constant = next((one for one in given if one.name == "function_constant"), None)
        if constant is not None and "(" not in self._bare(start, stop):
            self._function_constant(start, stop, constant.argument)
            return
        if is_kernel:
            self._kernel(start, stop, path, given, has_body=has_body)
        self._program_scope(start, stop)
        if has_body:
            self._threadgroup_variables(stop + 1, after - 1, in_kernel=is_kernel)
            if "(" in words:
                self._static_variables(stop + 1, after - 1)

    def _program_scope(self, start: int, stop: int) -> None:
        """Raise CompileError for a variable outside of functions that is not in constant memory, as Metal requires."""
        words = self._bare(start, stop)
        if len(words) < 2 or words[0] in _NO_VARIABLES or "constant" in words or "operator" in words:
            return
        before_call = words[: words.index("(")] if "(" in words else words
        if "=" in before_call or "(" not in words:
            self._text.refuse(start, "program scope variable must reside in constant address space")

    def _static_variables(self, position: int, end: int) -> None:
        text = self._text
        for index in range(position, end):
            if text.at(index) == "static" and text.at(index - 1) in _BEFORE_STATEMENT:
                stop, _ = self._statement(index, end)
                if not {"constant", "constexpr"} & set(text.texts(index, stop)):
                    text.refuse(index, "static local variable must reside in constant address space")

    def _bare(self, start: int, stop: int) -> list[str]:
        kept, index = [], start
        while index < stop:
            if self._text.is_attribute(index):
                index = self._text.closing(index)
            else:
                kept.append(self._text.at(index))
            index += 1
        return kept

    def _kernel(self, start: int, stop: int, path: tuple[str, ...], given: list[Attribute], *, has_body: bool) -> None:
        text = self._text
        position = start
        template = text.at(start) == "template"
        if template:
            position = text.closing_angle(start + 1) + 1
        while position < stop and text.at(position) != "(":
            position = text.closing(position) + 1 if text.is_attribute(position) else position + 1
        name = text.at(position - 1)
        if "void" not in text.texts(start, position):
            text.refuse(start, f"kernel '{name}' must return void")
        if not has_body:
            return
        limit = next((one.argument for one in given if one.name == "max_total_threads_per_threadgroup"), "")
        parameters = read_parameters(text, position)
        known = self._functions.get(name)
        if known is not None and known.path == path:
            text.refuse(start, f"kernel '{name}' is defined twice")
        self._functions[name] = _Function(
            path,
            text.line(position - 1),
            parameters,
            int(limit) if limit.isdigit() else MAX_THREADS,
            template,
            (start, text.closing(stop)),
        )
        host = next((one.argument for one in given if one.name == "host_name"), "")
        if host and not template:
            self._instances.append((host, name, text.line(start), path))

    def _instance(self, start: int, stop: int, path: tuple[str, ...], host: str) -> None:
        """Read an explicit instantiation: `template [[host_name("x")]] kernel void f<float>(...);`, or the form with
        `decltype` instead of `void` and parameters."""
        text = self._text
        index, last = start + 1, -1
        while index < stop:
            if text.is_attribute(index) or (text.at(index) == "decltype"):
                index = text.closing(index + (text.at(index) == "decltype"))
            elif text.at(index) == "(":
                break
            elif text.at(index) == "<":
                last = index
                index = text.closing_angle(index)
            index += 1
        if not host:
            return
        if last < 0:
            text.refuse(start, f"the instance {host} needs its template arguments: name<...>")
        expression = "".join(
            word + (" " if word.isidentifier() else "") for word in text.texts(last - 1, text.closing_angle(last) + 1)
        )
        self._instances.append((host, expression, text.line(start), path))
        text.blank(start, min(stop + 1, len(text)))

    def _function_constant(self, start: int, stop: int, argument: str) -> None:
        text = self._text
        words = [word for word in self._bare(start, stop) if word not in ("constant", "const", "static")]
        if not argument.isdigit() or len(words) < 2 or "=" in words:
            text.refuse(start, "a function constant is 'constant TYPE NAME [[function_constant(NUMBER)]];'")
        name, kind = words[-1], " ".join(words[:-1])
        self._found.constants.append(FunctionConstant(name, int(argument)))
        text.replace(start, stop + 1, f"static {kind} {name}; static bool kf_defined_{name};")

    # --- threadgroup memory ------------------------------------------------------------------------------------

    def _threadgroup_variables(self, position: int, end: int, *, in_kernel: bool) -> None:
        text = self._text
        for index in range(position, end):
            if text.at(index) != "threadgroup" or text.at(index - 1) not in (*_BEFORE_STATEMENT, "volatile", "static"):
                continue
            stop, _ = self._statement(index, end)
            self._threadgroup_variable(index, stop, in_kernel=in_kernel)

    def _threadgroup_variable(self, start: int, stop: int, *, in_kernel: bool) -> None:
        text = self._text
        parts = split(text.words[start + 1 : stop])
        if not parts:
            return
        first = [word.text for word in parts[0]]
        head = first[: min((first.index(mark) for mark in ("[", "=", "(") if mark in first), default=len(first))]
        if "*" in head or "&" in head or len(head) < 2:
            return  # a pointer or a reference to threadgroup memory, which is not a variable in it
        name = head[-1]
        if not in_kernel:
            text.refuse(start, f"variable '{name}' in threadgroup memory must be declared in a kernel function")
        if text.at(stop) == "{" or any(word.text == "=" for part in parts for word in part):
            text.refuse(start, f"initialization is not supported for threadgroup variable '{name}'")
        kind = " ".join(head[:-1])
        declared = []
        for number, part in enumerate(parts):
            words = [word.text for word in part]
            words = words[len(head) - 1 :] if number == 0 else words
            extent = "".join(word if word in "[]" else f" {word} " for word in words[1:])
            self._keys += 1
            key = f"kf_key_{self._keys}"
            declared.append(
                f"static char {key}; threadgroup {kind} (&{words[0]}){extent} = *(threadgroup {kind} (*){extent})"
                f"kf_threadgroup_array(&{key}, sizeof({kind}{extent}), metal::kf_granule<{kind}{extent}>, "
                f'"{words[0]}", {text.line(start)});'
            )
        text.replace(start, min(stop + 1, len(text)), " ".join(declared))

    # --- expressions -------------------------------------------------------------------------------------------

    def _expressions(self) -> None:
        text = self._text
        index = 0
        while index < len(text):
            word = text.at(index)
            if text.is_attribute(index):
                last = text.closing(index)
                text.blank(index, last + 1)
                index = last + 1
                continue
            if word in _BANNED:
                text.refuse(index, f"'{word}' is not supported in Metal")
            literal = _HALF.match(word) if word[:1].isdigit() or word[:1] == "." else None
            if literal:
                kind = "half" if literal[2] in "hH" else "bfloat"
                value = literal[1] if "." in literal[1] or "e" in literal[1].lower() else f"{literal[1]}."
                text.replace(index, index + 1, f"{kind}({value}f)")
            if (
                _SWIZZLE.match(word)
                and word not in self._members
                and self._after_dot(index)
                and text.at(index + 1) != "("
            ):
                places = ", ".join(str(_COMPONENTS[letter]) for letter in word)
                access = "kf_set" if self._is_assigned(index + 1) else "kf_get"
                text.replace(index, index + 1, f"template {access}<{places}>()")
            index += 1

    def _after_dot(self, index: int) -> bool:
        text = self._text
        return text.at(index - 1) == "." or (
            text.at(index - 1) == ">" and text.at(index - 2) == "-" and text.adjacent(index - 2)
        )

    def _is_assigned(self, index: int) -> bool:
        text = self._text
        if text.at(index) in _ASSIGNMENTS:
            return text.adjacent(index) and text.at(index + 1) == "="
        return text.at(index) == "=" and not (text.adjacent(index) and text.at(index + 1) == "=")

    # --- entry points ------------------------------------------------------------------------------------------

    def _name_kernels(self) -> None:
        renamed = set()
        for host, expression, line, path in self._instances:
            function = self._functions.get(expression.partition("<")[0].strip())
            if function is None:
                refuse(line, f"host_name {host}: there is no kernel '{expression}'")
            renamed.add(expression)
            public = "".join(part for part in re.findall(r'"((?:[^"\\]|\\.)*)"', host))
            qualified = "::".join(("", *(function.path or path), expression))
            self._found.kernels.append(self._named(public, qualified, function))
        for name, function in self._functions.items():
            if not function.template and name not in renamed:
                qualified = "::".join(("", *function.path, name))
                self._found.kernels.append(self._named(name, qualified, function))

    def _named(self, name: str, expression: str, function: _Function) -> KernelFunction:
        needed = tuple(one.name for one in self._found.constants if self._mentions(function, one.name))
        return KernelFunction(name, expression, function.line, function.parameters, function.max_threads, needed)

    def _mentions(self, function: _Function, name: str) -> bool:
        """Return whether a function constant is used in this kernel, or in any function that is not a kernel."""
        text = self._text
        others = [one.body for one in self._functions.values() if one is not function]
        places = [index for index in range(len(text)) if text.at(index) == name and not text.is_attribute(index + 1)]
        return any(not any(start <= place <= end for start, end in others) for place in places)

    def _entries(self) -> list[str]:
        """Return the C++ functions through which the runtime calls each kernel, and through which it learns about
        parameters and constants."""
        lines = []
        for number, one in enumerate(self._found.kernels):
            slots = {id(parameter): slot for slot, parameter in enumerate((*one.buffers, *one.memories))}
            arguments = ", ".join(_argument(parameter, slots) for parameter in one.parameters)
            lines.append(
                f'# {one.line} "{SOURCE}"\n'
                f'extern "C" __attribute__((nodebug, no_sanitize("thread", "undefined"))) void kf_run_{number}'
                f"(const kf_thread* kf_t, void* const* kf_a) {{ {one.expression}({arguments}); }}"
                f' extern "C" __attribute__((nodebug, no_sanitize("thread"))) void kf_parameters_{number}(int* kf_out)'
                f" {{ kf_describe(&{one.expression}, kf_out); }}\n"
            )
        for number, constant in enumerate(self._found.constants):
            lines.append(
                f'extern "C" __attribute__((nodebug, no_sanitize("thread"))) '
                f"void* kf_constant_{number}(int* kf_out, bool** kf_is) {{ "
                f"kf_out[0] = kf_code<decltype({constant.name})>; kf_out[1] = sizeof({constant.name}); "
                f"*kf_is = &kf_defined_{constant.name}; return &{constant.name}; }}\n"
            )
        return lines


def _argument(parameter: Parameter, slots: dict[int, int]) -> str:
    if parameter.kind == "triple":
        return f"kf_triple_argument{{kf_t->{parameter.source}}}"
    if parameter.kind == "single":
        return f"kf_single_argument{{kf_t->{parameter.source}}}"
    kind = "reference" if parameter.reference else "pointer"
    return f"kf_{kind}_argument{{kf_a[{slots[id(parameter)]}]}}"
